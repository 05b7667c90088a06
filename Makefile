# Every target sets up what it needs; slow parts are kept in a cache outside the checkout (see tools/workspace.py).
BOOT := tools/bootstrap.sh
IN := $(BOOT) tools/workspace.py run

.PHONY: help plan check test soak bench lab docs build clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16

plan: ## plan the example hosts and this machine; INVENTORY=… plans your own hosts, REPORT=… says where the report goes
	@$(BOOT) tools/plan.py

check: ## linters and unit tests, in less than three minutes
	@$(BOOT) tests/run.py check

test: ## everything that CI runs
	@$(BOOT) tests/run.py test

soak: ## the long sweeps, of which what passed on the same source is not repeated, and every machine of the lab (as root)
	@HOSTPREP_SOAK=1 $(IN) test pytest tests/unit -m soak -n auto
	@HOSTPREP_SOAK=1 $(IN) test pytest tests/lab
	@$(BOOT) tests/run.py test host kubelet

bench: ## speed, as ratios against other programs
	@$(IN) test python tests/bench

lab: ## boot a machine and two hosts with a real cluster and leave them running (as root); prints how to use and end them
	@$(IN) test molecule converge --scenario-name lab
	@cat build/lab.txt

docs: ## check the documentation and render it to build/docs
	@$(IN) test python tools/docs.py

build: ## the collection's tarball in build/
	@$(IN) test ansible-galaxy collection build --force --output-path build

clean: ## remove what was made in the checkout; the cache outside it stays
	rm -rf build collections tests/output .ansible .hypothesis .mypy_cache .pytest_cache .ruff_cache
