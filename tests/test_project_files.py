"""Files beside the code say what the code says: versions, dependencies, tools."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

import kmcl

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
KINDS_OF_CHANGE = {
    "Added",
    "Changed",
    "Changed numerical results",
    "Deprecated",
    "Removed",
    "Fixed",
    "Security",
}


def load_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def constraint(name: str) -> Version:
    """The version of a distribution that constraints.txt pins."""
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    found = re.search(rf"^{name}==(.+)$", text, re.MULTILINE)
    assert found is not None
    return Version(found[1])


def lower_bound(name: str) -> Version:
    requirements = map(Requirement, PYPROJECT["project"]["optional-dependencies"]["train"])
    (specifier,) = next(requirement.specifier for requirement in requirements if requirement.name == name)
    assert specifier.operator == ">="
    return Version(specifier.version)


def test_the_program_and_the_package_have_one_version():
    command = [sys.executable, "-m", "kmcl", "--version"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == (
        f"kmcl {kmcl.__version__}\n"
    )
    assert str(Version(kmcl.__version__)) == kmcl.__version__


def test_the_build_reads_the_version_from_the_package():
    assert "version" not in PYPROJECT["project"]
    assert PYPROJECT["project"]["dynamic"] == ["version"]
    source = ROOT / PYPROJECT["tool"]["hatch"]["version"]["path"]
    # The line that hatchling looks for, and the only one.
    assert re.findall(r'^__version__ = "(.+)"$', source.read_text(encoding="utf-8"), re.MULTILINE) == [
        kmcl.__version__
    ]
    others = [path for path in (ROOT / "src").rglob("*.py") if path != source]
    assert [path for path in others if re.search(r"^__version__ =", path.read_text(), re.MULTILINE)] == []


def test_the_installed_package_has_the_version():
    distribution = metadata.distribution("kmcl")
    origin = json.loads(distribution.read_text("direct_url.json") or "{}").get("url", "")
    if origin != ROOT.as_uri():
        pytest.skip("what is installed is not this checkout")
    assert distribution.version == kmcl.__version__, "install again: the version has changed since"


def test_the_newest_heading_of_the_changelog_is_the_version():
    headings = re.findall(r"^## (.+)$", CHANGELOG, re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    released = [re.fullmatch(r"\[(\S+)\] - (\d{4}-\d{2}-\d{2})", heading) for heading in headings[1:]]
    assert all(released), headings
    versions = [Version(match[1]) for match in released if match]
    assert versions == sorted(versions, reverse=True)
    assert str(versions[0]) == kmcl.__version__
    assert set(re.findall(r"^### (.+)$", CHANGELOG, re.MULTILINE)) <= KINDS_OF_CHANGE


def test_the_citation_has_the_version_and_the_paper():
    citation = load_yaml(ROOT / "CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert {"title", "message", "authors", "type"} <= citation.keys()
    assert citation["version"] == kmcl.__version__
    assert f"## [{citation['version']}] - {citation['date-released']}" in CHANGELOG
    assert citation["license"] == PYPROJECT["project"]["license"]
    paper = citation["preferred-citation"]
    assert [author["family-names"] for author in paper["authors"]] == [
        "Sajedi",
        "Khaki",
        "Plataniotis",
        "Hosseini",
    ]
    assert paper["doi"].endswith("2307.03967")
    assert paper["title"] in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_workflow_tests_three_systems_and_both_ends_of_torch():
    workflow = load_yaml(GITHUB / "workflows" / "ci.yml")
    matrix = workflow["jobs"]["tests"]["strategy"]["matrix"]
    assert {system.partition("-")[0] for system in matrix["os"]} == {"ubuntu", "macos", "windows"}
    oldest, newest = map(Version, matrix["torch"])
    assert oldest == lower_bound("torch")
    assert newest.release == constraint("torch").release[:2]
    vision = {Version(entry["torch"]): Version(entry["torchvision"]) for entry in matrix["include"]}
    assert vision[oldest] == lower_bound("torchvision")
    assert vision[newest].release == constraint("torchvision").release[:2]
    # YAML takes a bare `on` for a truth value.
    assert {"push", "pull_request"} <= workflow[True].keys()


def test_the_workflow_tests_the_versions_of_python_that_the_package_names():
    matrix = load_yaml(GITHUB / "workflows" / "ci.yml")["jobs"]["tests"]["strategy"]["matrix"]
    tested = {*matrix["python"], *(entry["python"] for entry in matrix["include"] if "python" in entry)}
    assert {f"Programming Language :: Python :: {version}" for version in tested} == {
        line for line in PYPROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", line)
    }


def test_the_workflow_runs_what_make_runs():
    workflow = load_yaml(GITHUB / "workflows" / "ci.yml")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    steps = [step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"]]
    for command in ("ruff check .", "ruff format --check .", "mypy", "lint-imports"):
        assert command in steps
        assert f"$(BIN)/{command}\n" in makefile
    (build,) = [step for step in steps if "sphinx" in step]
    assert f"$(BIN)/{build}\n" in makefile
    assert any(step.startswith("pytest ") and "--dist loadfile" in step for step in steps)
    assert "--dist loadfile" in makefile
    installed = re.findall(r"'\.\[([\w,]+)\]'", " ".join(steps))
    assert len(installed) == len(workflow["jobs"])
    for extras in installed:
        assert set(extras.split(",")) <= PYPROJECT["project"]["optional-dependencies"].keys()


def test_the_guide_for_contributors_names_what_there_is():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for path in re.findall(r"`((?:src|tests|docs|\.github)/[\w./-]*)`", text):
        assert (ROOT / path).exists(), path
    packages = {path.parent.name for path in (ROOT / "src" / "kmcl").glob("*/__init__.py")}
    tree = text[text.index("src/kmcl/\n") : text.index("benchmarks/")]
    assert set(re.findall(r"^  (\w+)/ ", tree, re.MULTILINE)) == packages
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^make ([\w-]+)", text, re.MULTILINE)) | set(
        re.findall(r"`make ([\w-]+)", text)
    )
    assert {"test", "test-slow", "docs", "figures", "demo"} <= targets
    assert [target for target in targets if f"\n{target}:" not in makefile] == []


@pytest.mark.parametrize("name", ["bug", "feature"])
def test_issue_forms_ask_for_what_is_needed(name):
    form = load_yaml(GITHUB / "ISSUE_TEMPLATE" / f"{name}.yml")
    assert {"name", "description", "body"} <= form.keys()
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    ids = [field["id"] for field in fields]
    assert len(set(ids)) == len(ids)
    assert all(field["attributes"]["label"] for field in fields)
    assert any(field.get("validations", {}).get("required") for field in fields)


def test_hooks_need_no_network_and_are_the_tools_of_the_tests():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (repository,) = load_yaml(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    for hook in repository["hooks"]:
        assert hook["language"] == "system"
        program, *_ = hook["entry"].split()
        assert f"$(BIN)/{program.removeprefix('.venv/bin/')}" in makefile
    assert len({hook["id"] for hook in repository["hooks"]}) == 4


def calls(tree: ast.AST) -> list[tuple[str, dict[str, object]]]:
    """Each call's function as text, and those of its keywords that are constants."""
    return [
        (ast.unparse(node.func), {k.arg: getattr(k.value, "value", None) for k in node.keywords if k.arg})
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    ]


def test_no_file_of_a_user_can_run_code():
    """What SECURITY.md promises: no unpickling, no evaluation, YAML as data."""
    seen = set()
    for path in (ROOT / "src").rglob("*.py"):
        for function, keywords in calls(ast.parse(path.read_text(encoding="utf-8"))):
            seen.add(function)
            if function == "torch.load":
                assert keywords.get("weights_only") is True, path
            if function == "np.load":
                assert keywords.get("allow_pickle") is False, path
            assert function not in {"eval", "exec", "yaml.load", "pickle.load", "pickle.loads"}, path
    assert {"torch.load", "np.load", "yaml.safe_load"} <= seen


def test_the_container_runs_the_service_without_rights():
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    extras = re.search(r"'\.\[([\w,]+)\]'", dockerfile)
    assert extras is not None
    assert set(extras[1].split(",")) <= PYPROJECT["project"]["optional-dependencies"].keys()
    for source in re.findall(r"^COPY (?!--from)(.+)$", dockerfile, re.MULTILINE):
        assert all((ROOT / name).exists() for name in source.split()[:-1]), source
    user = re.search(r"^USER (\d+):", dockerfile, re.MULTILINE)
    assert user is not None
    assert int(user[1]) > 0
    path = re.search(r"http://127\.0\.0\.1:8000(/\w+)", dockerfile)
    assert path is not None
    application = (ROOT / "src/kmcl/serving/service/application.py").read_text(encoding="utf-8")
    assert f'.get("{path[1]}"' in application
    (service,) = load_yaml(ROOT / "deploy" / "compose.yaml")["services"].values()
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert service["volumes"][0]["read_only"] is True
    assert service["ports"] == ["127.0.0.1:8000:8000"]


def test_no_module_defines_a_name_twice():
    """The second would silently change what the first is for, as when two modules become one."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        names: list[str] = []
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.append(node.name)
            elif isinstance(node, ast.Assign):
                names += [name.id for name in node.targets if isinstance(name, ast.Name)]
            elif isinstance(node, ast.ImportFrom):
                names += [name.asname or name.name for name in node.names]
        twice = {name for name in names if names.count(name) > 1}
        assert not twice, f"{path.relative_to(ROOT)}: {', '.join(sorted(twice))}"
