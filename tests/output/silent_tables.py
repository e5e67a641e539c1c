"""What makes an output table unable to say whether a write is in, and able again."""

import shutil

from deltalake import DeltaTable


def gone(place):
    shutil.move(place.table, f"{place.table}.unmounted")


def there_again(place):
    shutil.rmtree(place.table, ignore_errors=True)
    shutil.move(f"{place.table}.unmounted", place.table)


def unreadable(place):
    gone(place)
    shutil.copytree(f"{place.table}.unmounted", place.table)
    (next((place.log).glob("*.json"))).write_text("{ this was a commit")


def uncommittable(place):
    """The log's next entries are taken by folders: it can be read, and nothing can be committed."""
    gone(place)
    shutil.copytree(f"{place.table}.unmounted", place.table)
    newest = DeltaTable(place.table).version()
    for version in range(newest + 1, newest + 3):
        (place.log / f"{version:020}.json").mkdir()


def made_anew(place):
    """As a worker does that finds nothing where the disk is mounted otherwise."""
    gone(place)
    DeltaTable.create(place.table, DeltaTable(f"{place.table}.unmounted").schema())


#: How a table cannot tell; the last is asked where nothing is in yet, as what is in can be read.
SILENT = [(gone, "written"), (unreadable, "written"), (made_anew, "written"), (uncommittable, "begun")]
