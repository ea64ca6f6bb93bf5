package bolt

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
)

// bbolt looks at the pages of a file in goroutines of its own, which panic where a page is
// damaged. So it is shown only files whose pages have passed here: each page that is in use
// has its number, a form that fits its size, keys in order and within those of its parent,
// and one parent. Numbers are of this machine, as bbolt writes them.
type pages struct {
	file  io.ReaderAt
	size  uint64 // of a page
	end   uint64 // number behind the last page
	found map[uint64]bool
}

// Sizes in the format of bbolt's files.
const (
	pageHeader    = 16
	pageElement   = 16
	bucketHeader  = 16
	metaChecksum  = 56 // bytes that it is of
	boltMagic     = 0xED0CDAED
	branchPage    = 1
	leafPage      = 2
	bucketElement = 1
)

// checkPages returns an error that is ErrDamaged where pages in use are damaged. size is
// that of a page.
func checkPages(file io.ReaderAt, size int) error {
	var root, end, newest uint64
	for i := range 2 {
		meta := make([]byte, metaChecksum+8)
		if _, err := file.ReadAt(meta, int64(i*size)+pageHeader); err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		sum := fnv.New64a()
		_, _ = sum.Write(meta[:metaChecksum]) // it does not fail
		at := func(i int) uint64 { return binary.NativeEndian.Uint64(meta[i:]) }
		if binary.NativeEndian.Uint32(meta) == boltMagic && at(metaChecksum) == sum.Sum64() && (end == 0 || at(48) > newest) {
			root, end, newest = at(16), at(40), at(48)
		}
	}
	p := pages{file, uint64(size), end, map[uint64]bool{}}
	return p.check(root, nil, nil)
}

func (p *pages) damaged(id uint64, format string, args ...any) error {
	return fmt.Errorf("%w: page %d: "+format, append([]any{ErrDamaged, id}, args...)...)
}

// read reads a page with those that it runs over to.
func (p *pages) read(id uint64) ([]byte, error) {
	if id < 2 || id >= p.end {
		return nil, p.damaged(id, "the file has pages 2 to %d", p.end-1)
	}
	head := make([]byte, pageHeader)
	if _, err := p.file.ReadAt(head, int64(id*p.size)); err != nil {
		return nil, p.damaged(id, "%w", err)
	}
	over := uint64(binary.NativeEndian.Uint32(head[12:]))
	if number := binary.NativeEndian.Uint64(head); number != id || over >= p.end-id {
		return nil, p.damaged(id, "it has the number %d and runs over to %d more", number, over)
	}
	for i := id; i <= id+over; i++ {
		if p.found[i] {
			return nil, p.damaged(i, "it has two parents")
		}
		p.found[i] = true
	}
	b := make([]byte, (1+over)*p.size)
	if _, err := p.file.ReadAt(b, int64(id*p.size)); err != nil {
		return nil, p.damaged(id, "%w", err)
	}
	return b, nil
}

// check looks at a page and all below it, whose keys are low or more and below high; nil:
// there is no bound.
func (p *pages) check(id uint64, low, high []byte) error {
	b, err := p.read(id)
	if err != nil {
		return err
	}
	kind, n := binary.NativeEndian.Uint16(b[8:]), int(binary.NativeEndian.Uint16(b[10:]))
	if kind != branchPage && kind != leafPage || kind == branchPage && n == 0 || pageHeader+n*pageElement > len(b) {
		return p.damaged(id, "it is of kind %d, with %d entries", kind, n)
	}
	keys, rest := make([][]byte, n), make([][]byte, n)
	below := low
	for i := range n {
		e := b[pageHeader+i*pageElement:]
		number := func(at int) uint64 { return uint64(binary.NativeEndian.Uint32(e[at:])) }
		pos, ksize, vsize := number(4), number(8), number(12)
		if kind == branchPage {
			pos, ksize, vsize = number(0), number(4), 0
		}
		if pos+ksize+vsize > uint64(len(e)) {
			return p.damaged(id, "entry %d ends behind it", i)
		}
		keys[i], rest[i] = e[pos:pos+ksize], e[pos+ksize:pos+ksize+vsize]
		if order := bytes.Compare(below, keys[i]); order > 0 || i > 0 && order == 0 || high != nil && bytes.Compare(keys[i], high) >= 0 {
			return p.damaged(id, "key %d is out of order", i)
		}
		below = keys[i]
	}
	for i := range n {
		e := b[pageHeader+i*pageElement:]
		if kind == branchPage {
			next := high
			if i+1 < n {
				next = keys[i+1]
			}
			err = p.check(binary.NativeEndian.Uint64(e[8:]), keys[i], next)
		} else if binary.NativeEndian.Uint32(e)&bucketElement != 0 {
			if len(rest[i]) < bucketHeader {
				return p.damaged(id, "entry %d is a bucket of %d bytes", i, len(rest[i]))
			}
			if root := binary.NativeEndian.Uint64(rest[i]); root != 0 { // else it lies in the entry
				err = p.check(root, nil, nil)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
