/* A storage that forgets what was not synced: what a process below FORGETFUL_ROOT has synced is written down.

   Loaded by LD_PRELOAD. Each fsync appends one record to FORGETFUL_JOURNAL: of a file its inode and size ("F inode size
   path"), of a folder the names in it with their inodes ("D path", "N inode name" for each, "."). A file that was synced
   is linked into FORGETFUL_STORE, so that its inode and bytes stay when its name is removed. Nothing is really synced:
   a cut is a kill, and `storage.py` makes what is left from these records. Each call takes up to a millisecond, as on a
   disk, so that others meet the moments in between. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static int is_watched(const char *path) {
    const char *root = getenv("FORGETFUL_ROOT");
    return root != NULL && strncmp(path, root, strlen(root)) == 0;
}

/* The record of a file or a folder as it is now; NULL for others. */
static char *record_of(const char *path, const struct stat *known, size_t *length) {
    char *text = NULL;
    FILE *out = open_memstream(&text, length);
    if (S_ISREG(known->st_mode)) {
        fprintf(out, "F %lu %ld %s\n", known->st_ino, known->st_size, path);
        char kept[PATH_MAX];
        snprintf(kept, sizeof kept, "%s/%lu", getenv("FORGETFUL_STORE"), known->st_ino);
        if (link(path, kept) < 0 && errno != EEXIST && errno != ENOENT)
            abort();
    } else if (S_ISDIR(known->st_mode)) {
        fprintf(out, "D %s\n", path);
        DIR *folder = opendir(path);
        if (folder != NULL) {
            struct dirent *entry;
            while ((entry = readdir(folder)) != NULL)
                if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
                    fprintf(out, "N %lu %s\n", entry->d_ino, entry->d_name);
            closedir(folder);
        }
        fprintf(out, ".\n");
    }
    fclose(out);
    return text;
}

/* Record what is there now. One at a time: a listing of before never comes behind a newer one. */
static void record_one(const char *path, const struct stat *known) {
    int journal = open(getenv("FORGETFUL_JOURNAL"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (journal < 0 || flock(journal, LOCK_EX) < 0)
        abort();
    size_t size;
    char *record = record_of(path, known, &size);
    if (write(journal, record, size) != (ssize_t)size)
        abort();
    free(record);
    close(journal);
}

static int synced(int descriptor) {
    char name[64], path[PATH_MAX];
    struct stat known;
    snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(name, path, sizeof path - 1);
    if (length < 0)
        return -1;
    path[length] = 0;
    if (!is_watched(path) || fstat(descriptor, &known) < 0)
        return 0;
    usleep(known.st_ino * 7919 % 1000);
    record_one(path, &known);
    return 0;
}

static int sync_one(const char *path, const struct stat *known, int kind, struct FTW *where) {
    (void)kind, (void)where;
    record_one(path, known);
    return 0;
}

int fsync(int descriptor) { return synced(descriptor); }
int fdatasync(int descriptor) { return synced(descriptor); }
int syncfs(int descriptor) { (void)descriptor; sync(); return 0; }
void sync(void) {
    if (getenv("FORGETFUL_ROOT") != NULL)
        nftw(getenv("FORGETFUL_ROOT"), sync_one, 16, FTW_PHYS);
}
