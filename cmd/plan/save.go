package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"

	"inferplan/formats/document"
)

// toStdout as an output file is standard output: the document goes there, and
// the tables nowhere.
const toStdout = "-"

// output tells, before any work is done, whether a file can be written to what
// a flag names. A document of another kind that is there stays: nobody means to
// replace a profile with a plan.
func (p *printer) output(flag, path, kind string) error {
	switch {
	case path == "":
		return nil
	case path == toStdout && p.json:
		return usageErrorf("--%s - and --json exclude each other: both print a document to stdout", flag)
	case path == toStdout:
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return usageErrorf("--%s %s: found a folder, expected a file", flag, path)
	case err == nil && !info.Mode().IsRegular(): // a pipe, a terminal
		return nil
	case err == nil:
		if held := kindAt(path); held != "" && held != kind {
			return usageErrorf("--%s %s: found a %s there, expected no file or a %s\n  hint: name another file, or remove this one", flag, path, held, kind)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return usageErrorf("--%s: %w", flag, err)
	}
	dir := filepath.Dir(path)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return usageErrorf("--%s %s: found no folder %s\n  hint: mkdir -p %s", flag, path, dir, dir)
	}
	if err := unix.Access(dir, unix.W_OK); err != nil {
		return withCode(exitEnvironment, fmt.Errorf("--%s %s: writing to the folder %s: %w", flag, path, dir, err))
	}
	return nil
}

// formatField is how every document of ours starts.
var formatField = regexp.MustCompile(`^\s*\{?\s*"?format"?\s*:\s*["']?inferplan\.([a-z]+)/v`)

// kindAt is the kind of the document in a file; empty where it is none of ours.
func kindAt(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	head := make([]byte, 256)
	n, _ := io.ReadFull(f, head)
	if m := formatField.FindSubmatch(head[:n]); m != nil {
		return string(m[1])
	}
	return ""
}

// save writes a document to a file whole or not at all, or to stdout.
func (p *printer) save(path string, doc any, force bool) error {
	if path == toStdout {
		if err := document.Write(p.out, doc); err != nil {
			return fmt.Errorf("writing to stdout: %w", err)
		}
		p.out = io.Discard
		return nil
	}
	_, err := document.WriteFile(path, doc, document.Force(force))
	if _, exists := errors.AsType[*document.ExistsError](err); exists {
		return withCode(exitUsage, err)
	}
	return err
}

// wrote tells which files a verb wrote that has nothing else to show.
func (p *printer) wrote(paths []string) error {
	if p.json {
		return p.document(map[string][]string{"wrote": paths})
	}
	for _, path := range paths {
		fmt.Fprintln(p.out, "wrote", path)
	}
	return nil
}

// partFile is a file that has another name until it is complete. A pipe or a
// terminal is written as it is.
type partFile struct {
	*os.File
	path  string
	whole bool
}

func createPart(path string) (*partFile, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		return &partFile{f, path, false}, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".part.*.tmp")
	return &partFile{f, path, true}, err
}

// complete gives the file its name, unless what wrote it failed.
func (f *partFile) complete(err error) error {
	if f.whole {
		err = errors.Join(err, f.Chmod(0o644))
	}
	if err = errors.Join(err, f.Close()); err == nil && f.whole {
		err = os.Rename(f.Name(), f.path)
	}
	return err
}

// remove takes away what was not completed.
func (f *partFile) remove() {
	if f.whole {
		os.Remove(f.Name())
	}
}
