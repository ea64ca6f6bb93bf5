package modelfile

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"inferplan/formats/document"
)

// OperatorLibrary is a library of custom operators that a model runs with.
type OperatorLibrary struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256" check:"sha256"`
}

// ReadOperators returns the libraries of custom operators in files, each with the hash of its content.
func ReadOperators(paths []string) ([]OperatorLibrary, error) {
	var out []OperatorLibrary
	for _, path := range paths {
		sum, err := document.Digest(path)
		if err != nil {
			return nil, err
		}
		if path, err = filepath.Abs(path); err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		out = append(out, OperatorLibrary{path, sum})
	}
	return UniqueOperators(out), nil
}

// UniqueOperators returns the libraries in several lists, each once, by the hash of its content.
func UniqueOperators(lists ...[]OperatorLibrary) []OperatorLibrary {
	var out []OperatorLibrary
	for _, l := range slices.Concat(lists...) {
		if !slices.ContainsFunc(out, func(o OperatorLibrary) bool { return o.SHA256 == l.SHA256 }) {
			out = append(out, l)
		}
	}
	return out
}

// Find returns the library's file: the one at its path, else the one of its name in a folder. Its
// hash must be the library's.
func (l OperatorLibrary) Find(folder string) (string, error) {
	besideProfile := filepath.Join(folder, filepath.Base(l.Path))
	otherFile := ""
	for _, path := range []string{l.Path, besideProfile} {
		switch sum, err := document.Digest(path); {
		case err == nil && sum == l.SHA256:
			return filepath.Abs(path)
		case err == nil && otherFile == "":
			otherFile = fmt.Sprintf("%s has SHA-256 %s", path, sum)
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return "", err
		}
	}
	e := &document.Error{File: l.Path, Found: "no such file, and none of its name beside the models", Expected: "the library of custom operators with SHA-256 " + l.SHA256,
		Hint: "put it at " + besideProfile + ", or profile again with --ops"}
	if otherFile != "" {
		e.Found = otherFile
	}
	return "", e
}
