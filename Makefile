# make demo  sets up its own environment and runs the main job on embedded numbers
# make test  sets up its own environment and passes lint, types and tests
# make quick passes lint and the core of the tests

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/pytest -q -n auto --dist loadfile
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
unexport PYTHONDONTWRITEBYTECODE # tests start many processes, and each would compile the package again

.PHONY: demo test quick lint types pytest coverage browser bench figures docs dist clean

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
	$(BIN)/fedasym predict --task classification --radius 1.5 --centre 1.5 --aspect 2 --plot out/accuracy.png
	$(BIN)/fedasym compare ftfa fedavg --radius 1 --vary noise=0:2:200 --vary aspect=1.1:10:200 --plot out/phase.png
	$(BIN)/fedasym advise shops --label sales --client shop --report out/advice.html
	$(BIN)/fedasym simulate --radius 1 --noise 0.5 --aspect 2 --norm 2 --dimension 100 --trials 3 --vary clients=3,10,30 --plot out/simulation.png
	$(BIN)/fedasym run examples/demo.toml --into out/demo
	$(BIN)/fedasym report out/demo --into out/report.html --figures out/figures
	@printf '\nThe report of the experiment:  file://%s/out/report.html\nThe advice on the shops:       file://%s/out/advice.html\n' "$(CURDIR)" "$(CURDIR)"
	@printf '\nThree commands to go on with:\n  %s advise YOUR.csv --label COLUMN --client COLUMN\n  %s explore\n  %s train synthetic --algorithms local,fedavg,ftfa,rtfa --rounds 40 --seeds 0:3\n' \
	  $(BIN)/fedasym $(BIN)/fedasym $(BIN)/fedasym

# Types are checked beside the tests, one process more for the cores at hand, and told after them; each fails the whole.
test: lint browser
	@told=$$(mktemp); $(BIN)/mypy >$$told 2>&1 & types=$$!; \
	$(PYTEST); tests=$$?; \
	wait $$types; typed=$$?; cat $$told; rm -f $$told; exit $$((tests || typed))

# Theory and its golden numbers, exact linear fits, federations, the training twin and its compiled form, commands.
CORE := tests/test_golden.py tests/theory_classes/test_golden_binary.py tests/test_contract.py tests/test_errors.py tests/test_imports.py \
  tests/test_cli.py tests/linear/test_estimators.py tests/linear/test_server.py tests/linear/test_personal.py \
  tests/linear/test_likelihood.py tests/federations tests/classification/test_predict.py tests/experiments/test_spec.py \
  tests/training/test_twin_algorithms.py tests/training/test_twin_server.py tests/training/test_twin_clients.py \
  tests/training/test_twin_losses.py tests/training/test_plans.py tests/training/test_train_edges.py tests/training/test_train_hessians.py
quick: lint
	$(PYTEST) $(CORE)

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.ready
	$(BIN)/mypy

pytest: $(VENV)/.ready browser
	$(PYTEST)

# Lines and branches that the tests reach, in out/coverage: a quarter of an hour on two cores.
coverage: $(VENV)/.ready browser
	@rm -rf out/coverage && mkdir -p out/coverage
	COVERAGE_FILE=$(CURDIR)/out/coverage/data $(BIN)/coverage run -m pytest -q -n auto --dist loadfile -o faulthandler_timeout=1200
	COVERAGE_FILE=$(CURDIR)/out/coverage/data $(BIN)/coverage combine --quiet
	COVERAGE_FILE=$(CURDIR)/out/coverage/data $(BIN)/coverage report --sort=miss --skip-covered

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
