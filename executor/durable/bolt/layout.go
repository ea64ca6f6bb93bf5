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
	meta    = []byte("meta")    // version, check
	open    = []byte("open")    // sequence number -> id of a record that has not ended
	records = []byte("records") // id -> record
	texts   = []byte("texts")   // id, 0, offset -> piece of text
	ends    = []byte("ends")    // id -> time, end
	due     = []byte("due")     // class, 0, time of the end, id -> nothing
	values  = []byte("values")  // key -> value

	buckets = [][]byte{meta, open, records, texts, ends, due, values}
)

var errCorrupt = errors.New("the store's file is damaged")

// encodeNumber returns a number as it is written in keys: in ascending order of bytes.
func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// textKey returns the key of the piece of a text at an offset in bytes.
func textKey(id string, at int) []byte {
	return binary.BigEndian.AppendUint64(textPrefix(id), uint64(at))
}

// textPrefix returns what the keys of all pieces of a text begin with.
func textPrefix(id string) []byte { return append([]byte(id), 0) }

// dueKey returns the key of a record in the list of due records.
func dueKey(class string, ended time.Time, id string) []byte {
	k := binary.BigEndian.AppendUint64(duePrefix(class), uint64(ended.UnixNano()))
	return append(k, id...)
}

// duePrefix returns what the keys of all due records of a class begin with.
func duePrefix(class string) []byte { return append([]byte(class), 0) }

// recordHeader is the value of a record: sequence number, class, and the sealed data.
type header struct {
	seq   uint64
	class string
	data  []byte
}

// encode returns the value of a record as it is stored.
func (h *header) encode() []byte {
	b := binary.AppendUvarint(make([]byte, 0, len(h.data)+len(h.class)+16), h.seq)
	b = binary.AppendUvarint(b, uint64(len(h.class)))
	b = append(b, h.class...)
	return append(b, h.data...)
}

// valueReader reads the parts of a value. After reading past the end, failed is true.
type reader struct {
	b   []byte
	bad bool
}

// readUvarint reads a number.
func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[size:]
	return n
}

// readString reads a string with its length in front.
func (r *reader) text() string {
	n := r.number()
	if r.bad || n > uint64(len(r.b)) {
		r.bad = true
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

// findHeader reads the value of a record. Its data is valid until the end of the transaction.
func findHeader(tx *bbolt.Tx, id string) (*header, error) {
	v := tx.Bucket(records).Get([]byte(id))
	if v == nil {
		return nil, fmt.Errorf("%s: %w", id, durable.ErrNotFound)
	}
	return readHeader(id, v)
}

// readHeader decodes the value of a record.
func readHeader(id string, v []byte) (*header, error) {
	r := reader{b: v}
	h := &header{seq: r.number(), class: r.text(), data: r.b}
	if r.bad {
		return nil, fmt.Errorf("record %s: %w", id, errCorrupt)
	}
	return h, nil
}

// textPiece is a part of a text. size is its length in bytes before it was sealed.
type piece struct {
	at, size, tokens int
	data             []byte // sealed
}

// encode returns the value of a piece as it is stored.
func (p *piece) encode() []byte {
	b := binary.AppendUvarint(make([]byte, 0, len(p.data)+16), uint64(p.size))
	b = binary.AppendUvarint(b, uint64(p.tokens))
	return append(b, p.data...)
}

// readPiece reads an entry of the bucket of texts.
func readPiece(key, value []byte) (p piece, err error) {
	r := reader{b: value}
	p.at = int(binary.BigEndian.Uint64(key[len(key)-8:]))
	p.size, p.tokens, p.data = int(r.number()), int(r.number()), r.b
	if r.bad {
		return p, fmt.Errorf("text %q: %w", key, errCorrupt)
	}
	return p, nil
}
