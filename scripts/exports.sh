#!/bin/sh
# Builds a virtual environment with the training engines that exports are for, on top of .venv, and runs the tests that
# use them. Usage: exports.sh BIN VENV
set -eu
bin=$1
venv=$2

install() {
  rm -rf "$venv"
  "$bin/python" -m venv "$venv" || return 1
  # The packages of .venv, torch included, are visible here, with their own .pth files.
  base=$("$bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  own=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  echo "import site; site.addsitedir('$base')" >"$own/base.pth"
  export PIP_DISABLE_PIP_VERSION_CHECK=1 DS_BUILD_OPS=0
  "$venv/bin/python" -m pip install -qq --constraint constraints.txt 'deepspeed>=0.19' ninja tyro torchdata || return 1
  # These require other versions of transformers and datasets, or packages for GPUs, that their configurations do not use.
  "$venv/bin/python" -m pip install -qq --no-deps 'megatron-core>=0.16' 'torchtitan>=0.3' 'nemo-automodel>=0.7' spmd_types \
    torchao || return 1
  touch "$venv/ready"
}

if ! [ -f "$venv/ready" ] || [ pyproject.toml -nt "$venv/ready" ] || [ scripts/exports.sh -nt "$venv/ready" ]; then
  echo "setting up $venv with the training engines (a minute or two the first time)"
  if ! install >"$venv.log" 2>&1; then
    tail -n 5 "$venv.log" >&2
    echo "error: the training engines cannot be installed; $venv.log has the reason" >&2
    exit 1
  fi
fi
# DeepSpeed compiles a part of itself. A run that was killed meanwhile leaves a lock that later runs would wait for.
TORCH_EXTENSIONS_DIR=$(cd "$venv" && pwd)/torch-extensions
export TORCH_EXTENSIONS_DIR
find "$TORCH_EXTENSIONS_DIR" -name lock -delete 2>/dev/null || true
DS_ACCELERATOR=cpu exec "$venv/bin/python" -m pytest tests/export/engines
