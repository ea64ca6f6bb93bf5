package bolt

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
)

// pageChecker checks the pages of a file before bbolt sees them, because bbolt reads pages in goroutines of its own,
// which panic if a page is damaged. Each page that is in use must have its own number, a form that fits its size,
// keys in order and within those of its parent, and exactly one parent. Numbers have the byte order of this machine,
// as bbolt writes them.
type pages struct {
	file  io.ReaderAt
	size  uint64 // of a page, in bytes
	end   uint64 // number after the last page
	found map[uint64]bool
}

// Sizes in the format of bbolt's files.
const (
	pageHeader    = 16
	pageElement   = 16
	bucketHeader  = 16
	metaChecksum  = 56 // number of bytes that the checksum covers
	boltMagic     = 0xED0CDAED
	branchPage    = 1
	leafPage      = 2
	bucketElement = 1
)

// checkPages returns ErrDamaged if a page in use is damaged. size is the size of a page in bytes.
func checkPages(file io.ReaderAt, size int) error {
	// The newer of the two valid meta pages is in force: it names the root and the number of pages.
	var root, end, newest uint64
	for i := range 2 {
		meta := make([]byte, metaChecksum+8)
		if _, err := file.ReadAt(meta, int64(i*size)+pageHeader); err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		sum := fnv.New64a()
		_, _ = sum.Write(meta[:metaChecksum]) // it cannot fail
		at := func(i int) uint64 { return binary.NativeEndian.Uint64(meta[i:]) }
		if binary.NativeEndian.Uint32(meta) == boltMagic && at(metaChecksum) == sum.Sum64() && (end == 0 || at(48) > newest) {
			root, end, newest = at(16), at(40), at(48)
		}
	}
	p := pages{file, uint64(size), end, map[uint64]bool{}}
	return p.check(root, nil, nil)
}

// damageError returns an error that is ErrDamaged, for a page.
func (p *pages) damaged(id uint64, format string, args ...any) error {
	return fmt.Errorf("%w: page %d: "+format, append([]any{ErrDamaged, id}, args...)...)
}

// readPage reads a page, with the pages onto which it overflows, and marks them as visited.
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

// checkSubtree checks a page and all pages below it. Their keys must be at least minKey and less than keyLimit; nil means no
// bound.
func (p *pages) check(id uint64, low, high []byte) error {
	b, err := p.read(id)
	if err != nil {
		return err
	}
	kind, n := binary.NativeEndian.Uint16(b[8:]), int(binary.NativeEndian.Uint16(b[10:]))
	if kind != branchPage && kind != leafPage || kind == branchPage && n == 0 || pageHeader+n*pageElement > len(b) {
		return p.damaged(id, "it is of kind %d, with %d entries", kind, n)
	}

	// Split the page into keys and values, and check the order of the keys.
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

	// Check the pages below: children of a branch, and the roots of buckets.
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
			if root := binary.NativeEndian.Uint64(rest[i]); root != 0 { // otherwise the bucket lies in the entry itself
				err = p.check(root, nil, nil)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
