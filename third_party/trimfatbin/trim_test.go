package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

type entry struct {
	kind    uint16
	sm      uint32
	payload []byte
}

func container(entries ...entry) []byte {
	var body []byte
	for _, e := range entries {
		h := make([]byte, 64)
		binary.LittleEndian.PutUint16(h, e.kind)
		binary.LittleEndian.PutUint32(h[4:], uint32(len(h)))
		binary.LittleEndian.PutUint64(h[8:], uint64(len(e.payload)))
		binary.LittleEndian.PutUint32(h[28:], e.sm)
		body = append(append(body, h...), e.payload...)
	}
	h := make([]byte, 16)
	binary.LittleEndian.PutUint32(h, magic)
	binary.LittleEndian.PutUint16(h[4:], 1)
	binary.LittleEndian.PutUint16(h[6:], 16)
	binary.LittleEndian.PutUint64(h[8:], uint64(len(body)))
	return append(h, body...)
}

func fill(c byte, n int) []byte { return bytes.Repeat([]byte{c}, n) }

// section is two containers with padding between them.
func section() []byte {
	b := container(entry{kindCubin, 80, fill('a', 40)}, entry{kindCubin, 90, fill('b', 48)}, entry{kindPTX, 80, fill('p', 16)})
	for len(b)%64 != 0 {
		b = append(b, 0)
	}
	return append(b, container(entry{kindCubin, 90, fill('c', 8)}, entry{kindCubin, 120, fill('d', 800)})...)
}

func TestTrim(t *testing.T) {
	b, orig := section(), section()
	r, err := trim(b, map[uint32]bool{90: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) != len(orig) {
		t.Fatalf("size changed from %d to %d", len(orig), len(b))
	}
	for c, want := range map[byte]int{'a': 0, 'b': 48, 'c': 8, 'd': 0, 'p': 16} {
		if got := bytes.Count(b, fill(c, max(want, 8))) * max(want, 8); got != want {
			t.Errorf("%d bytes of %c, want %d", got, c, want)
		}
	}
	if r.containers != 2 || r.ptx != 16 || r.cubins[90] != (count{2, 56}) || r.cubins[120] != (count{1, 800}) {
		t.Errorf("report %+v", r)
	}
	// Everything but the dropped payloads is as it was: a second pass sees the same structure.
	again, err := trim(b, map[uint32]bool{90: true}, nil)
	if err != nil || again.containers != 2 || again.cubins[80] != r.cubins[80] {
		t.Errorf("second pass: %+v, %v", again, err)
	}
}

func TestTrimRefuses(t *testing.T) {
	short := container(entry{kindCubin, 90, fill('b', 40)})
	long := append([]byte(nil), short...)
	binary.LittleEndian.PutUint64(long[8:], 1<<40)
	wrap := append([]byte(nil), short...)
	binary.LittleEndian.PutUint64(wrap[16+8:], ^uint64(0)-50)
	for want, b := range map[string][]byte{
		"no container":            make([]byte, 100),
		"do not fit in":           long,
		"is cut off":              container(entry{kindCubin, 90, fill('b', 40)})[:0:0],
		"do not fit in its":       wrap,
		"kind 9":                  container(entry{9, 90, fill('b', 8)}),
		"none of the":             container(entry{kindCubin, 80, fill('b', 8)}),
		"header of 0 and payload": container(entry{kindCubin, 90, fill(0, 0)}, entry{0, 0, nil}),
	} {
		if want == "is cut off" {
			b = append([]byte(nil), short...)
			binary.LittleEndian.PutUint64(b[16+8:], 20) // the rest is too small for another entry
		}
		if want == "header of 0 and payload" {
			binary.LittleEndian.PutUint32(b[16+64+4:], 0)
		}
		before := append([]byte(nil), b...)
		_, err := trim(b, map[uint32]bool{90: true}, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
		if !bytes.Equal(b, before) {
			t.Errorf("%q: changed in spite of the error", want)
		}
	}
}

func FuzzTrim(f *testing.F) {
	f.Add(section())
	f.Add([]byte{0x50, 0xED, 0x55, 0xBA})
	f.Fuzz(func(t *testing.T, b []byte) {
		n := len(b)
		before := append([]byte(nil), b...)
		if _, err := trim(b, map[uint32]bool{90: true}, nil); err != nil && !bytes.Equal(b, before) {
			t.Error("changed in spite of an error")
		}
		if len(b) != n {
			t.Error("size changed")
		}
	})
}

// library is a minimal ELF file with the section.
func library(name string, sec []byte) []byte {
	names := "\x00" + name + "\x00.shstrtab\x00"
	h := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1,
		Ehsize: 64, Shentsize: 64, Shnum: 3, Shstrndx: 2,
	}
	copy(h.Ident[:], "\x7fELF\x02\x01\x01")
	h.Shoff = uint64(64 + len(sec) + len(names))
	var buf bytes.Buffer
	write := func(v any) { _ = binary.Write(&buf, binary.LittleEndian, v) }
	write(h)
	buf.Write(sec)
	buf.WriteString(names)
	write(elf.Section64{})
	write(elf.Section64{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: 64, Size: uint64(len(sec)), Addralign: 8})
	write(elf.Section64{Name: uint32(2 + len(name)), Type: uint32(elf.SHT_STRTAB), Off: uint64(64 + len(sec)), Size: uint64(len(names)), Addralign: 1})
	return buf.Bytes()
}

func TestRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lib.so")
	orig := library(".nv_fatbin", section())
	if err := os.WriteFile(path, orig, 0o755); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(&out, path, "", "", ""); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); !bytes.Equal(got, orig) {
		t.Error("listing changed the file")
	}
	out.Reset()
	if err := run(&out, path, "", "sm_90", ""); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"sm_80: 0.0 MB in 1 cubins, zeroed", "sm_90: 0.0 MB in 2 cubins, kept", "2 containers"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output %q lacks %q", out.String(), want)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || len(got) != len(orig) || bytes.Contains(got, fill('d', 8)) || !bytes.Contains(got, fill('b', 48)) {
		t.Errorf("%d bytes (were %d), %v", len(got), len(orig), err)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o755 {
		t.Errorf("mode %v", info.Mode())
	}

	for want, args := range map[string][2]string{
		"expected architectures": {path, "hopper"},
		"none of the":            {path, "75"},
		"not an ELF file":        {"trim.go", "90"},
		"no such file":           {"absent.so", "90"},
	} {
		if err := run(&out, args[0], "", args[1], ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	plain := filepath.Join(t.TempDir(), "plain.so")
	if err := os.WriteFile(plain, library(".text", section()), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run(&out, plain, "", "90", ""); err == nil || !strings.Contains(err.Error(), "no section .nv_fatbin") {
		t.Errorf("error %v", err)
	}
}

// cubin is an ELF file with a section for each kernel.
func cubin(kernels ...string) []byte {
	var names bytes.Buffer
	names.WriteByte(0)
	sections := []elf.Section64{{}}
	for _, k := range append([]string{".shstrtab"}, kernels...) {
		if k != ".shstrtab" {
			k = ".text." + k
		}
		kind := uint32(elf.SHT_PROGBITS)
		if k == ".shstrtab" {
			kind = uint32(elf.SHT_STRTAB)
		}
		sections = append(sections, elf.Section64{Name: uint32(names.Len()), Type: kind})
		names.WriteString(k)
		names.WriteByte(0)
	}
	const head = 64
	sections[1].Off, sections[1].Size = head, uint64(names.Len())
	h := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: 190, Version: 1, Shoff: uint64(head + names.Len()), Ehsize: head, Shentsize: 64, Shnum: uint16(len(sections)), Shstrndx: 1}
	copy(h.Ident[:], "\x7fELF\x02\x01\x01")
	var out bytes.Buffer
	for _, part := range []any{h, names.Bytes(), sections} {
		if err := binary.Write(&out, binary.LittleEndian, part); err != nil {
			panic(err)
		}
	}
	return out.Bytes()
}

// Kernels that nobody calls go as well, by their names; a cubin with one kernel
// that stays, or whose kernels cannot be listed, stays whole.
func TestDrop(t *testing.T) {
	pack, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer pack.Close()
	flash, mixed, plain := cubin("flash_fwd", "flash_bwd"), cubin("flash_fwd", "relu"), cubin("add")
	packed := pack.EncodeAll(cubin("flash_packed"), nil)
	for len(packed)%8 != 0 {
		packed = append(packed, 0)
	}
	b := container(entry{kindCubin, 90, flash}, entry{kindCubin, 90, mixed}, entry{kindCubin, 90, plain}, entry{kindCubin, 90, fill('?', 24)}, entry{kindCubin, 90, packed})
	// The compressed one tells its length without padding.
	binary.LittleEndian.PutUint32(b[bytes.Index(b, packed)-64+16:], uint32(len(pack.EncodeAll(cubin("flash_packed"), nil))))
	r, err := trim(b, map[uint32]bool{90: true}, regexp.MustCompile("flash"))
	if err != nil {
		t.Fatal(err)
	}
	if r.dropped.entries != 2 || r.unread != 1 {
		t.Errorf("%+v", r)
	}
	for name, c := range map[string]struct {
		payload []byte
		stays   bool
	}{"flash": {flash, false}, "packed flash": {packed, false}, "mixed": {mixed, true}, "plain": {plain, true}, "unreadable": {fill('?', 24), true}} {
		if bytes.Contains(b, c.payload) != c.stays {
			t.Errorf("%s: stays is %v", name, !c.stays)
		}
	}
	if _, err := trim(container(entry{kindCubin, 90, flash}), map[uint32]bool{90: true}, regexp.MustCompile("flash")); err == nil {
		t.Error("nothing is left, and that passes")
	}
}
