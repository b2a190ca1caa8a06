"""The table of pages, in the order of the menu: a page enters here, and nowhere else."""

from tilescope.web.page import Page
from tilescope.web.pages import banks, layout, load, pipeline, plan, swizzle, symptoms, tensor_core, tensor_map

PAGES: dict[str, Page] = {
    module.PAGE.name: module.PAGE
    for module in (plan, tensor_map, load, swizzle, layout, banks, tensor_core, pipeline, symptoms)
}
