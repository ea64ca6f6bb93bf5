package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"inferplan/executor/durable"
)

// The buckets of the file, with their keys and values.
var (
	metaBucket    = []byte("meta")    // version, check
	openBucket    = []byte("open")    // sequence number -> id of a record that has not ended
	recordsBucket = []byte("records") // id -> record
	textsBucket   = []byte("texts")   // id, 0, offset -> piece of text
	endsBucket    = []byte("ends")    // id -> time, end
	dueBucket     = []byte("due")     // class, 0, time of the end, id -> nothing
	valuesBucket  = []byte("values")  // key -> value

	buckets = [][]byte{metaBucket, openBucket, recordsBucket, textsBucket, endsBucket, dueBucket, valuesBucket}
)

var errCorrupt = errors.New("the store's file is damaged")

// encodeNumber returns a number as it is written in keys: in ascending order of bytes.
func encodeNumber(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// textKey returns the key of the piece of a text at an offset in bytes.
func textKey(id string, offset int) []byte {
	return binary.BigEndian.AppendUint64(textPrefix(id), uint64(offset))
}

// textPrefix returns what the keys of all pieces of a text begin with.
func textPrefix(id string) []byte { return append([]byte(id), 0) }

// dueKey returns the key of a record in the list of due records.
func dueKey(class string, endedAt time.Time, id string) []byte {
	k := binary.BigEndian.AppendUint64(duePrefix(class), uint64(endedAt.UnixNano()))
	return append(k, id...)
}

// duePrefix returns what the keys of all due records of a class begin with.
func duePrefix(class string) []byte { return append([]byte(class), 0) }

// recordHeader is the value of a record: sequence number, class, and the sealed data.
type recordHeader struct {
	seq   uint64
	class string
	data  []byte
}

// encode returns a record as it is stored: sequence number, length of the class, class, data.
func (h *recordHeader) encode() []byte {
	b := binary.AppendUvarint(make([]byte, 0, len(h.data)+len(h.class)+16), h.seq)
	b = binary.AppendUvarint(b, uint64(len(h.class)))
	b = append(b, h.class...)
	return append(b, h.data...)
}

// valueReader reads the parts of a value. After reading past the end, failed is true.
type valueReader struct {
	b      []byte
	failed bool
}

// readUvarint reads a number of variable length. If there is none, it sets r.failed.
func (r *valueReader) readUvarint() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 {
		r.failed = true
		return 0
	}
	r.b = r.b[size:]
	return n
}

// readString reads a string with its length in front, and moves on behind it. If the bytes end before, it sets r.failed
// and returns "".
func (r *valueReader) readString() string {
	n := r.readUvarint()
	if r.failed || n > uint64(len(r.b)) {
		r.failed = true
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

// findHeader reads a record's sequence number, class and data. The data is valid until the end of the transaction.
// Without such a record it returns durable.ErrNotFound.
func findHeader(tx *bbolt.Tx, id string) (*recordHeader, error) {
	v := tx.Bucket(recordsBucket).Get([]byte(id))
	if v == nil {
		return nil, fmt.Errorf("%s: %w", id, durable.ErrNotFound)
	}
	return readHeader(id, v)
}

// readHeader decodes the stored form of a record.
func readHeader(id string, v []byte) (*recordHeader, error) {
	r := valueReader{b: v}
	h := &recordHeader{seq: r.readUvarint(), class: r.readString(), data: r.b}
	if r.failed {
		return nil, fmt.Errorf("record %s: %w", id, errCorrupt)
	}
	return h, nil
}

// textPiece is a part of a text. size is its length in bytes before it was sealed.
type textPiece struct {
	offset, size, tokens int
	data                 []byte // sealed
}

// encode returns the value of a piece as it is stored.
func (p *textPiece) encode() []byte {
	b := binary.AppendUvarint(make([]byte, 0, len(p.data)+16), uint64(p.size))
	b = binary.AppendUvarint(b, uint64(p.tokens))
	return append(b, p.data...)
}

// readPiece decodes a stored piece of a record's text. The end of the key is its offset in the text.
func readPiece(key, value []byte) (p textPiece, err error) {
	r := valueReader{b: value}
	p.offset = int(binary.BigEndian.Uint64(key[len(key)-8:]))
	p.size, p.tokens, p.data = int(r.readUvarint()), int(r.readUvarint()), r.b
	if r.failed {
		return p, fmt.Errorf("text %q: %w", key, errCorrupt)
	}
	return p, nil
}
