"""PTX text into data: `read_module` gives what `syntax` describes."""
