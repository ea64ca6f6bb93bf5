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

	"inferplan/formats"
	"inferplan/formats/document"
)

// toStdout, as the name of an output file, stands for standard output. The document is written there in place of
// the tables.
const toStdout = document.Stdin

// checkOutput returns an error, before any work is done, if the file that a flag names cannot be written. A document
// of another kind is not replaced, because nobody means to replace a profile with a plan. flag is the flag's name,
// for errors, and kind the kind of document to write. An empty path is no output.
func (p *printer) checkOutput(flag, path, kind string) error {
	switch {
	case path == "":
		return nil
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

// checkGrowingProfile is checkOutput for a profile that is measured, which needs a file.
func (p *printer) checkGrowingProfile(path string) error {
	if path == toStdout {
		return usageErrorf("--output -: a profile grows in its file while it is measured; name a file")
	}
	return p.checkOutput("output", path, formats.KindProfile)
}

// formatField matches the beginning of every document of ours.
var formatField = regexp.MustCompile(`^\s*\{?\s*"?format"?\s*:\s*["']?inferplan\.([a-z]+)/v`)

// kindAt returns the kind of the document in a file, or "" if it is not a document of ours.
func kindAt(path string) string {
	f, err := document.Open(path)
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

// saveDocument writes a document to a file completely or not at all, or to stdout. With force an existing file is
// replaced; otherwise one that differs is an error. After stdout has the document, nothing else is printed to it.
func (p *printer) saveDocument(path string, doc any, force bool) error {
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

// SaveDocument writes a document as saveDocument does, and replaces an existing file.
func (p *printer) SaveDocument(path string, doc any) error { return p.saveDocument(path, doc, true) }

// printWritten prints the files that a verb wrote, if it has nothing else to print.
func (p *printer) printWritten(paths []string) error {
	if p.json {
		return p.PrintJSON(map[string][]string{"wrote": paths})
	}
	for _, path := range paths {
		fmt.Fprintln(p.out, "wrote", path)
	}
	return nil
}

// partFile is a file that has a temporary name until it is complete. A pipe or a terminal is written directly.
type partFile struct {
	*os.File
	path       string
	isComplete bool
}

// createPart opens a file to write to: a temporary one beside path, which complete renames to path or, if path is a
// pipe, a device or standard output (-), path itself.
func createPart(path string) (*partFile, error) {
	if path == toStdout {
		return &partFile{os.Stdout, path, false}, nil
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		return &partFile{f, path, false}, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".part.*.tmp")
	return &partFile{f, path, true}, err
}

// complete closes the file and, if writing it succeeded (err is nil), renames the temporary file to its path. A pipe
// or device is only closed.
func (f *partFile) complete(err error) error {
	if f.isComplete {
		err = errors.Join(err, f.Chmod(0o644))
	}
	if err = errors.Join(err, f.Close()); err == nil && f.isComplete {
		err = os.Rename(f.Name(), f.path)
	}
	return err
}

// remove deletes the file if it was not completed.
func (f *partFile) remove() {
	if f.isComplete {
		os.Remove(f.Name())
	}
}
