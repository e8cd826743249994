"""Commands of container runtimes that this machine does not have, on Charliecloud.

Each takes the command line of its own, refuses what that one would not know, and hands ranks what that one would.
"""

from __future__ import annotations

from pathlib import Path

COMMON = """\
#!/bin/bash
export USER=root # ch-run needs it
binds=() cwd=/ image=''
refuse() { echo "stand-in: $*" >&2; exit 90; }
bind() {
  [[ $1 == /*:/* ]] || refuse "$1 is no OUTSIDE:INSIDE"
  [ -e "${1%%:*}" ] || refuse "${1%%:*} is not there"
  mkdir -p "$IMAGE/${1#*:}"
  binds+=(--bind="$1")
}
entered() { [ "$image" = "$IMAGE" ] || refuse "$image is no image"; inside=(ch-run --cd="$cwd" "${binds[@]}" "$image" --); }
"""
"""IMAGE is in the environment of the one who submits."""

APPTAINER = """\
[ "$1" = exec ] || refuse "$1"
shift
while [[ $1 == -* ]]; do
  case $1 in --nv | --rocm) ;; --pwd) cwd=$2; shift ;; --bind=*) bind "${1#*=}" ;; *) refuse "$1" ;; esac
  shift
done
image=$1
entered
unset LD_LIBRARY_PATH
[ "$APPTAINERENV_MASTER_ADDR" = "$MASTER_ADDR" ] || refuse "an image may set MASTER_ADDR"
export APPTAINER_NAME=apptainer
exec "${inside[@]}" "${@:2}"
"""

PODMAN_HPC = """\
[ "$1" = run ] || refuse "$1"
shift
names=() handed=()
while [[ $1 == -* ]]; do
  case $1 in
    --rm | --network=host | --ipc=host | --gpu | --nccl) ;;
    --workdir=*) cwd=${1#*=} ;; --volume=*) bind "${1#*=}" ;; --env=*) names+=("${1#*=}") ;; *) refuse "$1" ;;
  esac
  shift
done
image=$1
entered
while IFS= read -r -d '' variable; do
  # shellcheck disable=SC2053
  for name in "${names[@]}"; do [[ ${variable%%=*} != $name ]] || handed+=("$variable"); done
done < <(env -0)
exec env -i PATH="$PATH" USER=root "${handed[@]}" APPTAINER_NAME=podman-hpc "${inside[@]}" "${@:2}"
"""

SRUN = """\
own=()
while [ $# -gt 0 ] && [ "$1" != bash ]; do
  case $1 in
    --container-image=*) image=${1#*=} kind=pyxis ;;
    --container-mounts=*) while IFS= read -r -d, each; do bind "$each"; done <<<"${1#*=}," ;;
    --container-workdir=*) cwd=${1#*=} ;;
    --container-env=*) for name in ${1//[=,]/ }; do [[ $name == --* || -n ${!name+set} ]] || refuse "$name is not set"; done ;;
    --environment=*) kind=cscs; eval "$(python3 - "${1#*=}" <<<"$EDF")" ;;
    *) own+=("$1") ;;
  esac
  shift
done
[ -n "$kind" ] || exec /usr/bin/srun "${own[@]}" "$@"
entered
exec /usr/bin/srun "${own[@]}" env APPTAINER_NAME="$kind" "${inside[@]}" "$@"
"""

EDF = """\
import shlex, sys, tomllib
edf = tomllib.load(open(sys.argv[1], "rb"))
for mount in edf.pop("mounts"):
    print("bind", shlex.quote(mount))
print("image=" + shlex.quote(edf.pop("base_environment")))
print("cwd=" + shlex.quote(edf.pop("workdir")))
for name, value in edf.pop("env").items():
    print("export", name + "=" + shlex.quote(value))
assert not edf
"""


def write_standins(folder: Path) -> None:
    """The commands, in a folder that is to be first in PATH."""
    folder.mkdir()
    with_edf = f"EDF=$(cat <<'END'\n{EDF}END\n)\n{SRUN}"
    for name, text in {"apptainer": APPTAINER, "podman-hpc": PODMAN_HPC, "srun": with_edf}.items():
        (folder / name).write_text(COMMON + text)
        (folder / name).chmod(0o755)
