#!/bin/sh
# Check tensor maps and kernels without a GPU: check-kernels.sh FILE…
#
# A file *.map.json holds the arguments of a tensor map, or of several (`tilescope check FILE`).
# A file *.launch.toml holds the launch of a kernel (`tilescope run KERNEL --template > NAME.launch.toml` writes one).
# The exit status is 1 if a map is refused, or if a run finds a race, a hang, a fault or wrong bytes.
status=0
for file in "$@"; do
    case $file in
        *.map.json) tilescope check "$file" -q || status=1 ;;
        *.launch.toml) tilescope run --launch "$file" --strict -q || status=1 ;;
        *) echo "check-kernels: $file is neither *.map.json nor *.launch.toml" >&2 && status=1 ;;
    esac
done
exit $status
