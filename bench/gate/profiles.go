package main

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
)

// read reads the profiles that were taken, by their date.
func read(path string) ([]*formats.Profile, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var texts []json.RawMessage
	if err := json.NewDecoder(z).Decode(&texts); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var list []*formats.Profile
	for i, text := range texts {
		p, err := formats.DecodeProfile(text, fmt.Sprintf("%s[%d]", path, i))
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

// add puts profiles into the file.
func add(path string, more []string) error {
	list, err := read(path)
	if err != nil {
		return err
	}
	for _, name := range more {
		p, err := formats.ReadProfile(name)
		if err != nil {
			return err
		}
		list = append(list, p)
	}
	slices.SortStableFunc(list, func(a, b *formats.Profile) int { return strings.Compare(a.Devices[0].Date, b.Devices[0].Date) })
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(z, "["); err != nil {
		return err
	}
	for i, p := range list {
		p.Notes = nil
		for m := range p.Models { // the place of a model on the machine is of no use to others
			if from := p.Models[m].Source; from != nil {
				from.Path = filepath.Base(from.Path)
			}
		}
		if i > 0 {
			if _, err := io.WriteString(z, ","); err != nil {
				return err
			}
		}
		if err := document.Write(z, p); err != nil {
			return err
		}
	}
	if _, err := io.WriteString(z, "]"); err != nil {
		return err
	}
	return errors.Join(z.Close(), f.Close())
}

// slower is a profile in which a model (-1: every one) takes longer by a factor.
func slower(p *formats.Profile, model int, factor float64) *formats.Profile {
	scaled := func(l *formats.Latency) { *l = l.Scaled(factor, factor) }
	return p.WithTimes(func(m int, _ *formats.Measurement) func(*formats.Latency) {
		if model >= 0 && m != model {
			return nil
		}
		return scaled
	})
}
