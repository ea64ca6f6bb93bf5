package bolt

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"inferplan/executor/durable"
)

// ErrDamaged says that the file of a store cannot be read as a whole. Rescue has what
// can be read of it.
var ErrDamaged = errors.New("the file is damaged")

// guarded calls read and returns what it panics with as an error that is ErrDamaged:
// bbolt finds damage by panics, and pages that the file has no more are faults of memory.
func guarded(read func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, r)
		}
	}()
	return read()
}

// readOnly opens a file without reading which of its pages are free, which bbolt does in
// goroutines of its own.
func readOnly(path string) (*bbolt.DB, error) {
	return openGuarded(path, &bbolt.Options{Timeout: lockTimeout, ReadOnly: true})
}

func openGuarded(path string, opt *bbolt.Options) (db *bbolt.DB, err error) {
	err = guarded(func() error {
		db, err = bbolt.Open(path, 0o600, opt)
		return err
	})
	switch {
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch):
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return db, err
}

// probe reads all that is in use: pages, the form of entries, the order of keys.
func probe(path string) error {
	db, err := readOnly(path)
	read := byte(0) // so that values are read
	if err == nil {
		err = checkFile(path, db.Info().PageSize)
	}
	if err == nil {
		err = guarded(func() error {
			return db.View(func(tx *bbolt.Tx) error {
				return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
					return b.ForEach(func(k, v []byte) error {
						if !legible(string(name), k, v) {
							return fmt.Errorf("%w: %s %q cannot be read", ErrDamaged, name, k)
						}
						for i := 0; i < len(v); i += os.Getpagesize() { // a value may span pages
							read ^= v[i]
						}
						return nil
					})
				})
			})
		})
	}
	if db != nil {
		err = errors.Join(err, guarded(db.Close))
	}
	if err != nil {
		return fmt.Errorf("store %s: %w", path, err)
	}
	return nil
}

func checkFile(path string, pageSize int) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return checkPages(f, pageSize)
}

// legible says whether an entry of a bucket has the form that was written.
func legible(bucket string, k, v []byte) bool {
	switch bucket {
	case string(records):
		_, err := readHeader(string(k), v)
		return err == nil && (&durable.Record{ID: string(k)}).Check() == nil
	case string(ends):
		return len(v) >= 8
	case string(texts):
		if len(k) < 9 {
			return false
		}
		_, err := readPiece(k, v)
		return err == nil
	}
	return len(k) > 0 && len(k) < bbolt.MaxKeySize
}

// Rescued counts what Rescue found.
type Rescued struct {
	Records int  `json:"records"` // with what became of them
	Open    int  `json:"open"`    // of them: not answered
	Values  int  `json:"values"`  // of files and batches
	Partial bool `json:"partial"` // some of the file could not be read
}

// Rescue copies what can be read of a damaged store into a new one, which must not be
// there: the entries of each bucket from its start and from its end up to the damage.
// What is left of a record without its data is dropped.
func Rescue(from, to string, opt Options) (*Rescued, error) {
	if _, err := os.Stat(to); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("rescuing into %s: %w", to, cmp.Or(err, error(fs.ErrExist)))
	}
	db, err := readOnly(from)
	if err != nil {
		return nil, fmt.Errorf("store %s: nothing can be read: %w", from, err)
	}
	defer func() { _ = guarded(db.Close) }()
	s, err := Open(to, opt)
	if err != nil {
		return nil, err
	}
	out := &Rescued{}
	err = guarded(func() error {
		return db.View(func(tx *bbolt.Tx) error { return s.take(tx, out) })
	})
	if errors.Is(err, ErrDamaged) {
		out.Partial, err = true, nil
	}
	if err = errors.Join(err, s.Close()); err == nil && out.Partial && out.Records+out.Values == 0 {
		err = errors.Join(fmt.Errorf("store %s: nothing can be read: %w", from, ErrDamaged), os.Remove(to))
	}
	return out, err
}

// take copies the records, what became of them, and values. Which records are open, and
// when the others are due, follows from that.
func (s *Store) take(from *bbolt.Tx, out *Rescued) error {
	for _, name := range [][]byte{records, ends, texts, values} {
		var b *bbolt.Bucket
		if err := guarded(func() error { b = from.Bucket(name); return nil }); err != nil || b == nil {
			out.Partial = true
			continue
		}
		entries, whole := readable(b)
		out.Partial = out.Partial || !whole
		if err := s.db.Update(func(tx *bbolt.Tx) error { return put(tx, name, entries, out) }); err != nil {
			return err
		}
	}
	return s.db.Update(func(tx *bbolt.Tx) error { return reopen(tx, out) })
}

// entry is a key with its value.
type entry struct{ key, value []byte }

// readable lists the entries of a bucket up to the damage, from both ends.
func readable(b *bbolt.Bucket) (list []entry, whole bool) {
	copied := func(k, v []byte) { list = append(list, entry{append([]byte{}, k...), append([]byte{}, v...)}) }
	if err := guarded(func() error {
		c := b.Cursor()
		for k, v := c.First(); k != nil; k, v = c.Next() {
			copied(k, v)
		}
		return nil
	}); err == nil {
		return list, true
	}
	last := ""
	if len(list) > 0 {
		last = string(list[len(list)-1].key)
	}
	_ = guarded(func() error {
		c := b.Cursor()
		for k, v := c.Last(); k != nil && string(k) > last; k, v = c.Prev() {
			copied(k, v)
		}
		return nil
	})
	slices.SortFunc(list, func(a, b entry) int { return bytes.Compare(a.key, b.key) })
	return list, false
}

// put writes entries of a bucket. What belongs to no record that is there is left out, and
// so is text behind a gap.
func put(tx *bbolt.Tx, name []byte, list []entry, out *Rescued) error {
	size := map[string]int{} // of the text of a record so far
	for _, e := range list {
		id, ok := string(e.key), legible(string(name), e.key, e.value)
		if ok && string(name) == string(texts) {
			id = string(e.key[:len(e.key)-9])
			p, _ := readPiece(e.key, e.value) // it is legible
			ok = p.at == size[id]
			size[id] += p.size
		}
		if ok && (string(name) == string(texts) || string(name) == string(ends)) {
			_, err := findHeader(tx, id)
			ok = err == nil
		}
		if !ok {
			out.Partial = true
			continue
		}
		switch string(name) {
		case string(records):
			out.Records++
		case string(values):
			out.Values++
		}
		if err := tx.Bucket(name).Put(e.key, e.value); err != nil {
			return err
		}
	}
	return nil
}

// reopen makes the lists of records that are open and that are due from the records.
func reopen(tx *bbolt.Tx, out *Rescued) error {
	last := uint64(0)
	err := tx.Bucket(records).ForEach(func(id, _ []byte) error {
		h, err := findHeader(tx, string(id))
		if err != nil {
			return err
		}
		last = max(last, h.seq)
		if end := tx.Bucket(ends).Get(id); len(end) >= 8 {
			return tx.Bucket(due).Put(dueKey(h.class, time.Unix(0, int64(sequence(end))), string(id)), []byte{})
		}
		if tx.Bucket(open).Get(number(h.seq)) != nil { // damage gave two records one number
			out.Partial = true
			return nil
		}
		out.Open++
		return tx.Bucket(open).Put(number(h.seq), append([]byte{}, id...))
	})
	return errors.Join(err, tx.Bucket(open).SetSequence(last))
}
