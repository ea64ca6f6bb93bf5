package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

func main() {
	keep := flag.String("keep", "", "architectures to keep, as 80,90; empty lists only")
	drop := flag.String("drop", "", "also those of the kept whose kernels' (mangled) names all match this regular expression")
	out := flag.String("o", "", "file to write instead of the input")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: trimfatbin [-keep SM,…] [-drop REGEXP] [-o FILE] LIBRARY")
		os.Exit(2)
	}
	if err := run(os.Stdout, flag.Arg(0), *out, *keep, *drop); err != nil {
		fmt.Fprintln(os.Stderr, "trimfatbin:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, in, out, keepList, dropText string) error {
	keep, err := parseKeep(keepList)
	if err != nil {
		return err
	}
	var drop *regexp.Regexp
	if dropText != "" {
		if drop, err = regexp.Compile(dropText); err != nil {
			return fmt.Errorf("-drop: %w", err)
		}
	}
	data, err := os.ReadFile(in)
	if err != nil {
		return err
	}
	lo, hi, err := fatbinSection(data)
	if err != nil {
		return fmt.Errorf("%s: %w", in, err)
	}
	r, err := trim(data[lo:hi], keep, drop)
	if err != nil {
		return fmt.Errorf("%s: section .nv_fatbin: %w", in, err)
	}
	r.print(w, keep)
	if len(keep) == 0 {
		return nil
	}
	if out == "" {
		out = in
	}
	return replace(in, out, data)
}

func parseKeep(list string) (map[uint32]bool, error) {
	keep := map[uint32]bool{}
	for _, f := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' }) {
		n, err := strconv.ParseUint(strings.TrimPrefix(f, "sm_"), 10, 32)
		if err != nil {
			return nil, fmt.Errorf("-keep %q: expected architectures such as 80,90", list)
		}
		keep[uint32(n)] = true
	}
	return keep, nil
}

// fatbinSection returns where .nv_fatbin lies in an ELF file.
func fatbinSection(data []byte) (lo, hi uint64, err error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return 0, 0, fmt.Errorf("not an ELF file: %w", err)
	}
	defer f.Close()
	s := f.Section(".nv_fatbin")
	if s == nil {
		return 0, 0, errors.New("no section .nv_fatbin: no GPU kernels inside")
	}
	lo, hi = s.Offset, s.Offset+s.FileSize
	if hi < lo || hi > uint64(len(data)) {
		return 0, 0, errors.New("section .nv_fatbin reaches beyond the end of the file")
	}
	return lo, hi, nil
}

// replace writes data whole or not at all, with the mode of the input.
func replace(in, out string, data []byte) error {
	info, err := os.Stat(in)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(out), ".trimfatbin-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(info.Mode().Perm()), tmp.Close())
	if err != nil {
		return fmt.Errorf("writing %s: %w", out, err)
	}
	return os.Rename(tmp.Name(), out)
}

func (r *report) print(w io.Writer, keep map[uint32]bool) {
	var sms []int
	for sm := range r.cubins {
		sms = append(sms, int(sm))
	}
	sort.Ints(sms)
	for _, sm := range sms {
		what := "listed"
		if len(keep) > 0 {
			what = "zeroed"
			if keep[uint32(sm)] {
				what = "kept"
			}
		}
		fmt.Fprintf(w, "sm_%d: %.1f MB in %d cubins, %s\n", sm, float64(r.cubins[uint32(sm)].bytes)/1e6, r.cubins[uint32(sm)].entries, what)
	}
	if r.dropped.entries > 0 || r.unread > 0 {
		fmt.Fprintf(w, "%.1f MB in %d cubins dropped by their kernels' names, %d cubins not readable and kept\n", float64(r.dropped.bytes)/1e6, r.dropped.entries, r.unread)
	}
	fmt.Fprintf(w, "%d containers, %.1f MB of PTX\n", r.containers, float64(r.ptx)/1e6)
}
