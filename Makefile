# make demo  sets up its own environment and runs the main job on embedded numbers
# make test  sets up its own environment and passes lint, types and tests

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: demo test lint types pytest browser bench figures docs dist clean

# What users need, for the demo; what developers need comes on top of it.
$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedasym needs Python 3.11 or newer; found " + sys.version.split()[0] + ". Name one: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[experiments]'
	@touch $@

$(VENV)/.ready: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(VENV)/.installed
	@mkdir -p out
	$(BIN)/fedasym predict --radius 1 --noise 0.5 --aspect 2 --norm 2 --plot out/predict.png
	$(BIN)/fedasym predict --radius 1 --noise 0.5 --aspect 2 --norm 2 --clients 10
	$(BIN)/fedasym predict --task classification --radius 1.5 --centre 1.5 --aspect 2 --plot out/accuracy.png
	$(BIN)/fedasym compare ftfa fedavg --radius 1 --vary noise=0:2:200 --vary aspect=1.1:10:200 --plot out/phase.png
	$(BIN)/fedasym path --radius 1 --noise 0.7 --aspect 2 --flow --plot out/path.png
	$(BIN)/fedasym simulate --radius 1 --noise 0.5 --aspect 2 --norm 2 --dimension 100 --trials 3 --vary clients=3,5,10,30 --plot out/simulation.png
	$(BIN)/fedasym run examples/demo.toml --into out/demo
	$(BIN)/fedasym report out/demo --into out/report.html --figures out/figures

test: lint types pytest

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.ready
	$(BIN)/mypy

pytest: $(VENV)/.ready browser
	$(BIN)/pytest -q -n auto --dist loadgroup

# A browser, to test pages as readers see them: installed where that may be done, and otherwise those tests skip themselves.
BROWSERS ?= chromium chromium-browser google-chrome google-chrome-stable
APT := DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install chromium
browser:
	@for each in $(BROWSERS); do command -v $$each >/dev/null && exit 0; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing Chromium, to test pages as readers see them"; \
	  { timeout 45 sh -c '$(APT) --download-only || { apt-get -qq update && $(APT) --download-only; }' && $(APT); } >/dev/null 2>&1 \
	    || echo "It could not be installed here: the tests of pages in a browser will be skipped"; \
	else \
	  echo "There is no Chromium or Chrome on PATH: the tests of pages in a browser will be skipped"; \
	fi

bench: $(VENV)/.ready
	$(BIN)/python benchmarks/predict_speed.py
	$(BIN)/python benchmarks/simulate_speed.py --quick
	$(BIN)/python benchmarks/train_speed.py --quick

figures: $(VENV)/.ready
	$(BIN)/python docs/draw.py
	$(BIN)/fedasym explore --static docs/explore.html

# The documentation as pages, in out/docs; the reference is written from the code first. No network; any fault is an error.
docs: $(VENV)/.ready
	$(BIN)/python docs/build.py

# What a release is made of, in dist: built apart from this environment, installed into empty ones and used there.
dist: $(VENV)/.ready
	$(BIN)/python benchmarks/packages.py --keep dist

clean:
	rm -rf $(VENV) out dist
