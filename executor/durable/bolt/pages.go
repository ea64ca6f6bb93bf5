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
type pageChecker struct {
	file    io.ReaderAt
	size    uint64 // of a page, in bytes
	endPage uint64 // number after the last page
	visited map[uint64]bool
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

// checkPages returns ErrDamaged if a page that a database file uses is damaged, before the database library sees
// it. size is the size of a page in bytes.
func checkPages(file io.ReaderAt, size int) error {
	// The newer of the two valid meta pages is in force: it names the root and the number of pages.
	var root, endPage, newestTx uint64
	for i := range 2 {
		meta := make([]byte, metaChecksum+8)
		if _, err := file.ReadAt(meta, int64(i*size)+pageHeader); err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		sum := fnv.New64a()
		_, _ = sum.Write(meta[:metaChecksum]) // it cannot fail
		// In bbolt's layout the root is at byte 16, the number of pages at 40, and the number of the transaction at 48.
		field := func(i int) uint64 { return binary.NativeEndian.Uint64(meta[i:]) }
		if binary.NativeEndian.Uint32(meta) == boltMagic && field(metaChecksum) == sum.Sum64() && (endPage == 0 || field(48) > newestTx) {
			root, endPage, newestTx = field(16), field(40), field(48)
		}
	}
	p := pageChecker{file, uint64(size), endPage, map[uint64]bool{}}
	return p.checkSubtree(root, nil, nil)
}

// damageError returns an error that is ErrDamaged, for a page.
func (p *pageChecker) damageError(id uint64, format string, args ...any) error {
	return fmt.Errorf("%w: page %d: "+format, append([]any{ErrDamaged, id}, args...)...)
}

// readPage returns the content of the bbolt page of a number, together with the pages behind it onto which it overflows,
// and marks them as visited. It returns an error if the number is outside of the file, differs from the one in the page,
// or was visited before. Pages 0 and 1 are the file's heads and no part of the tree.
func (p *pageChecker) readPage(id uint64) ([]byte, error) {
	if id < 2 || id >= p.endPage {
		return nil, p.damageError(id, "the file has pages 2 to %d", p.endPage-1)
	}
	head := make([]byte, pageHeader)
	if _, err := p.file.ReadAt(head, int64(id*p.size)); err != nil {
		return nil, p.damageError(id, "%w", err)
	}
	overflow := uint64(binary.NativeEndian.Uint32(head[12:]))
	if number := binary.NativeEndian.Uint64(head); number != id || overflow >= p.endPage-id {
		return nil, p.damageError(id, "it has the number %d and runs over to %d more", number, overflow)
	}
	for i := id; i <= id+overflow; i++ {
		if p.visited[i] {
			return nil, p.damageError(i, "it has two parents")
		}
		p.visited[i] = true
	}
	b := make([]byte, (1+overflow)*p.size)
	if _, err := p.file.ReadAt(b, int64(id*p.size)); err != nil {
		return nil, p.damageError(id, "%w", err)
	}
	return b, nil
}

// checkSubtree checks the bbolt page of a number and all pages below it, before bbolt, which would panic, reads them:
// kinds, sizes, and the order of the keys, which must be at least minKey and less than keyLimit (nil stands for no
// bound).
func (p *pageChecker) checkSubtree(id uint64, minKey, keyLimit []byte) error {
	b, err := p.readPage(id)
	if err != nil {
		return err
	}
	// The head of a page has its kind and its number of entries.
	kind, n := binary.NativeEndian.Uint16(b[8:]), int(binary.NativeEndian.Uint16(b[10:]))
	if kind != branchPage && kind != leafPage || kind == branchPage && n == 0 || pageHeader+n*pageElement > len(b) {
		return p.damageError(id, "it is of kind %d, with %d entries", kind, n)
	}

	// Split the page into keys and values, and check the order of the keys.
	keys, values := make([][]byte, n), make([][]byte, n)
	previousKey := minKey
	for i := range n {
		element := b[pageHeader+i*pageElement:]
		field := func(offset int) uint64 { return uint64(binary.NativeEndian.Uint32(element[offset:])) }
		// The head of an entry has its position from there and the sizes of key and value; a branch has no values.
		pos, ksize, vsize := field(4), field(8), field(12)
		if kind == branchPage {
			pos, ksize, vsize = field(0), field(4), 0
		}
		if pos+ksize+vsize > uint64(len(element)) {
			return p.damageError(id, "entry %d ends behind it", i)
		}
		keys[i], values[i] = element[pos:pos+ksize], element[pos+ksize:pos+ksize+vsize]
		if comparison := bytes.Compare(previousKey, keys[i]); comparison > 0 || i > 0 && comparison == 0 || keyLimit != nil && bytes.Compare(keys[i], keyLimit) >= 0 {
			return p.damageError(id, "key %d is out of order", i)
		}
		previousKey = keys[i]
	}

	// Check the pages below: children of a branch, and the roots of buckets.
	for i := range n {
		element := b[pageHeader+i*pageElement:]
		if kind == branchPage {
			childLimit := keyLimit
			if i+1 < n {
				childLimit = keys[i+1]
			}
			err = p.checkSubtree(binary.NativeEndian.Uint64(element[8:]), keys[i], childLimit)
		} else if binary.NativeEndian.Uint32(element)&bucketElement != 0 {
			if len(values[i]) < bucketHeader {
				return p.damageError(id, "entry %d is a bucket of %d bytes", i, len(values[i]))
			}
			if root := binary.NativeEndian.Uint64(values[i]); root != 0 { // otherwise the bucket lies in the entry itself
				err = p.checkSubtree(root, nil, nil)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
