#!/usr/bin/env bash
# Build the wheel and use it as a newcomer would, in clean environments: without extras, then with.
#   make test-wheel
set -euo pipefail
repository=$(cd "$(dirname "$0")/.." && pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python="${PYTHON:-python3}"
export PIP_DISABLE_PIP_VERSION_CHECK=1

"$python" -m pip wheel --quiet --no-deps --wheel-dir "$place" "$repository"
wheel=$(ls "$place"/canary_rl-*.whl)
"$python" -m venv "$place/bare"
"$place/bare/bin/pip" install --quiet "$wheel"
cd "$place"
for absent in mujoco matplotlib; do
  if bare/bin/python -c "import $absent" 2>/dev/null; then echo "$absent is there"; exit 1; fi
done
bare/bin/canary list >/dev/null
bare/bin/canary-rl --version
bare/bin/canary train --seeds 1 --total-steps 20000 --quiet
bare/bin/canary evaluate latest --episodes 200
bare/bin/canary certify latest --episodes 500 || test $? -eq 1
bare/bin/canary export latest --format numpy
{ bare/bin/canary train --env EcoAnt --quiet 2>&1 || true; } | grep "canary-rl\[mujoco\]"
bare/bin/canary report latest
{ bare/bin/canary compare latest latest 2>&1 || true; } | grep "canary-rl\[plot\]"

bare/bin/pip install --quiet "${wheel}[mujoco,plot,onnx]"
bare/bin/canary export latest --format onnx
bare/bin/canary train --env EcoAnt --seeds 1 --total-steps 5000 --quiet
echo "The wheel works, without extras and with them."
