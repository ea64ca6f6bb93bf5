package main

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The layout of a container, as far as it is needed (little endian):
//
//	container  u32 magic, u16 version, u16 header size, u64 size of all entries
//	entry      +0 u16 kind, +4 u32 header size, +8 u64 payload size, +28 u32 architecture, then the payload
const (
	magic        = 0xBA55ED50
	containerMin = 16
	entryMin     = 32

	kindPTX   = 1
	kindCubin = 2
)

type report struct {
	containers int
	ptx        uint64 // bytes
	cubins     map[uint32]count
}

type count struct {
	entries int
	bytes   uint64
}

// trim zeroes, in place, the cubins of every architecture that keep lacks; with an empty keep it only counts. It
// changes nothing if it returns an error.
func trim(b []byte, keep map[uint32]bool) (*report, error) {
	r := &report{cubins: map[uint32]count{}}
	type span struct{ lo, hi uint64 }
	var drop []span
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
				if keep[sm] {
					kept = true
				} else {
					drop = append(drop, span{e + eh, e + eh + payload})
				}
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
	for _, s := range drop {
		clear(b[s.lo:s.hi])
	}
	return r, nil
}
