package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// The layout of a container, as far as it is needed (little endian):
//
//	container  u32 magic, u16 version, u16 header size, u64 size of all entries
//	entry      +0 u16 kind, +4 u32 header size, +8 u64 payload size, +16 u32 the same without padding, +28 u32
//	           architecture, then the payload: an ELF file, as it is or compressed with zstd
const (
	magic        = 0xBA55ED50
	containerMin = 16
	entryMin     = 32
	zstdMagic    = 0xFD2FB528
	elfMagic     = 0x464C457F

	kindPTX   = 1
	kindCubin = 2
)

type report struct {
	containers int
	ptx        uint64 // bytes
	cubins     map[uint32]count
	dropped    count // of the architectures to keep, by their kernels' names
	unread     int   // cubins to keep whose kernels could not be listed
}

type count struct {
	entries int
	bytes   uint64
}

// trim zeroes, in place, the cubins of every architecture that keep lacks, and of the others those all of whose kernels
// have a name that drop (nil for none) matches; with an empty keep it only counts. It changes nothing if it returns an
// error.
func trim(b []byte, keep map[uint32]bool, drop *regexp.Regexp) (*report, error) {
	r := &report{cubins: map[uint32]count{}}
	type span struct{ lo, hi uint64 }
	var gone []span
	kept := false
	n := uint64(len(b))
	for at := uint64(0); at+containerMin <= n; {
		if binary.LittleEndian.Uint32(b[at:]) != magic {
			at += 8 // containers are aligned; padding lies between them
			continue
		}
		header, size := uint64(binary.LittleEndian.Uint16(b[at+6:])), binary.LittleEndian.Uint64(b[at+8:])
		if header < containerMin || size > n || at+header+size > n {
			return nil, fmt.Errorf("container at offset %#x: header of %d and entries of %d bytes do not fit in %d bytes", at, header, size, n)
		}
		r.containers++
		end := at + header + size
		for e := at + header; e < end; {
			if e+entryMin > end {
				return nil, fmt.Errorf("entry at offset %#x is cut off", e)
			}
			kind := binary.LittleEndian.Uint16(b[e:])
			eh, payload := uint64(binary.LittleEndian.Uint32(b[e+4:])), binary.LittleEndian.Uint64(b[e+8:])
			sm := binary.LittleEndian.Uint32(b[e+28:])
			if eh < entryMin || payload > n || e+eh+payload > end {
				return nil, fmt.Errorf("entry at offset %#x: header of %d and payload of %d bytes do not fit in its container", e, eh, payload)
			}
			switch kind {
			case kindCubin:
				c := r.cubins[sm]
				c.entries++
				c.bytes += payload
				r.cubins[sm] = c
				if !keep[sm] {
					gone = append(gone, span{e + eh, e + eh + payload})
					break
				}
				if drop != nil {
					cubin := b[e+eh : e+eh+payload]
					if exact := uint64(binary.LittleEndian.Uint32(b[e+16:])); exact > 0 && exact < payload {
						cubin = cubin[:exact]
					}
					names := kernels(cubin)
					if len(names) == 0 {
						r.unread++
					} else if !slices.ContainsFunc(names, func(n string) bool { return !drop.MatchString(n) }) {
						r.dropped.entries++
						r.dropped.bytes += payload
						gone = append(gone, span{e + eh, e + eh + payload})
						break
					}
				}
				kept = true
			case kindPTX:
				r.ptx += payload
			default:
				return nil, fmt.Errorf("entry at offset %#x: kind %d, expected %d (PTX) or %d (cubin)", e, kind, kindPTX, kindCubin)
			}
			e += eh + payload
		}
		at = (end + 7) &^ 7
	}
	if r.containers == 0 {
		return nil, errors.New("no container found")
	}
	if len(keep) == 0 {
		return r, nil
	}
	if !kept {
		return nil, errors.New("none of the architectures to keep is inside: nothing would be left")
	}
	for _, s := range gone {
		clear(b[s.lo:s.hi])
	}
	return r, nil
}

// kernels lists the kernels of a cubin: each has a section .text.NAME.
func kernels(cubin []byte) []string {
	if len(cubin) < 4 {
		return nil
	}
	if binary.LittleEndian.Uint32(cubin) == zstdMagic {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil
		}
		defer d.Close()
		if cubin, err = d.DecodeAll(cubin, nil); err != nil || len(cubin) < 4 {
			return nil
		}
	}
	if binary.LittleEndian.Uint32(cubin) != elfMagic {
		return nil
	}
	f, err := elf.NewFile(bytes.NewReader(cubin))
	if err != nil {
		return nil
	}
	defer f.Close()
	var out []string
	for _, s := range f.Sections {
		if name, ok := strings.CutPrefix(s.Name, ".text."); ok {
			out = append(out, name)
		}
	}
	return out
}
