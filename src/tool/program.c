// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* tool: finds a program as execvp() does, and looks into it as the kernel and ld.so(8) do. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "tool/program.h"

#define PATH_DEFAULT "/bin:/usr/bin" /* execvp(3) */

static int executable(const char *path)
{
	struct stat st;

	if (stat(path, &st))
		return errno == ENOTDIR ? -ENOENT : -errno;
	return S_ISREG(st.st_mode) && !access(path, X_OK) ? 0 : -EACCES;
}

/* Next directory of @list, up to its colon; an empty one is the current directory. */
static int try_dir(const char *dir, size_t len, const char *name, char path[PATH_MAX])
{
	int n = snprintf(path, PATH_MAX, "%.*s%s%s", (int)len, dir, len ? "/" : "", name);

	return n < 0 || n >= PATH_MAX ? -ENOENT : executable(path);
}

/**
 * tool_program_find() - where is a program?
 * @name: its name, or its path if there is a slash in it
 * @path: receives its path
 *
 * Return: 0; -ENOENT; -EACCES if what was found cannot be executed; what stat() says.
 */
int tool_program_find(const char *name, char path[PATH_MAX])
{
	const char *dir = getenv("PATH");
	int err, ret = -ENOENT;
	size_t len;

	if (strchr(name, '/') || !*name)
		return try_dir("", 0, name, path);
	for (dir = dir ? dir : PATH_DEFAULT; ; dir += len + 1) {
		len = strcspn(dir, ":");
		err = try_dir(dir, len, name, path);
		if (!err)
			return 0;
		if (err == -EACCES)
			ret = err;
		if (!dir[len])
			return ret;
	}
}

/* The loader is in secure mode (ld.so(8)): it preloads nothing from a path. */
static bool gains_rights(const char *path)
{
	struct stat st;

	if (stat(path, &st))
		return false;
	return ((st.st_mode & S_ISUID) && st.st_uid != geteuid()) || ((st.st_mode & S_ISGID) && st.st_gid != getegid()) ||
	       (geteuid() && getxattr(path, "security.capability", NULL, 0) > 0);
}

/* Does the kernel start a loader for it? */
static bool has_interpreter(int fd, const ElfW(Ehdr) *eh)
{
	ElfW(Phdr) ph;
	unsigned int i;

	for (i = 0; i < eh->e_phnum; i++) {
		if (pread(fd, &ph, sizeof(ph), (off_t)(eh->e_phoff + i * sizeof(ph))) != sizeof(ph))
			return true; /* not for us to judge */
		if (ph.p_type == PT_INTERP)
			return true;
	}
	return false;
}

static bool read_header(const char *path, ElfW(Ehdr) *eh)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool ok;

	if (fd < 0)
		return false;
	ok = read(fd, eh, sizeof(*eh)) == sizeof(*eh) && !memcmp(eh->e_ident, ELFMAG, SELFMAG);
	close(fd);
	return ok;
}

static const char *elf_obstacle(const char *path)
{
	ElfW(Ehdr) eh, own;
	const char *why = NULL;
	int fd;

	if (!read_header(path, &eh) || !read_header("/proc/self/exe", &own)) /* a script, or nothing that can be read */
		return NULL;
	if (eh.e_ident[EI_CLASS] != own.e_ident[EI_CLASS] || eh.e_machine != own.e_machine)
		return "it is built for another kind of machine than uwarp";
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		why = has_interpreter(fd, &eh) ? NULL : "it is statically linked";
		close(fd);
	}
	return why;
}

/**
 * tool_program_obstacle() - will the loader preload anything into a program?
 * @path: the program
 *
 * Of a script, the interpreter is what counts, and is not looked at.
 *
 * Return: NULL if it will, as far as one can see; else why not.
 */
const char *tool_program_obstacle(const char *path)
{
	if (gains_rights(path))
		return "it is set-user-id, set-group-id or has file capabilities";
	return elf_obstacle(path);
}
