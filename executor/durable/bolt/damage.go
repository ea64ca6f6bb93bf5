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

// ErrDamaged is returned when the file of a store cannot be read completely. Rescue copies what can be read.
var ErrDamaged = errors.New("the file is damaged")

// recoverDamage calls read and turns a panic into an error that is ErrDamaged: bbolt panics when it finds damage, and
// reading pages that the file no longer has is a memory fault.
func guarded(read func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, r)
		}
	}()
	return read()
}

// readOnly opens a file without searching for its free pages, which bbolt does in goroutines of its own.
func readOnly(path string) (*bbolt.DB, error) {
	return openGuarded(path, &bbolt.Options{Timeout: lockTimeout, ReadOnly: true})
}

// openRecovering opens a file. If it is damaged, the error is ErrDamaged.
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

// checkReadable reads everything that is in use: pages, the form of entries, and the order of keys. It returns
// ErrDamaged if something cannot be read.
func probe(path string) error {
	db, err := readOnly(path)
	read := byte(0) // uses every page of a value, so that it is read
	if err == nil {
		err = checkFile(path, db.Info().PageSize)
	}
	if err == nil {
		// Read all entries.
		err = guarded(func() error {
			return db.View(func(tx *bbolt.Tx) error {
				return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
					return b.ForEach(func(k, v []byte) error {
						if !legible(string(name), k, v) {
							return fmt.Errorf("%w: %s %q cannot be read", ErrDamaged, name, k)
						}
						for i := 0; i < len(v); i += os.Getpagesize() { // a value may span several pages
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

// checkFile checks the pages of a file.
func checkFile(path string, pageSize int) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return checkPages(f, pageSize)
}

// isWellFormed reports whether an entry of a bucket has the form in which it is written.
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

// RescueReport counts what Rescue has copied.
type Rescued struct {
	Records int  `json:"records"` // records with their text and result
	Open    int  `json:"open"`    // those of them without a result
	Values  int  `json:"values"`  // values of files and batches
	Partial bool `json:"partial"` // some of the file could not be read
}

// Rescue copies what can be read of a damaged store into a new one, which must not exist: the entries of each bucket
// from its start and from its end up to the damage. Text and results whose record is lost are dropped.
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

	// If nothing at all could be read, leave no empty store behind.
	if err = errors.Join(err, s.Close()); err == nil && out.Partial && out.Records+out.Values == 0 {
		err = errors.Join(fmt.Errorf("store %s: nothing can be read: %w", from, ErrDamaged), os.Remove(to))
	}
	return out, err
}

// copyBuckets copies records, results, texts and values. The lists of open and of due records are made anew from
// them.
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

// readableEntries returns the entries of a bucket up to the damage, from both ends. complete says that all could be
// read.
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

	// Read from the end, down to the last entry that was read from the start.
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

// writeEntries writes the entries of a bucket. It leaves out entries whose record is missing, and text after a gap.
func put(tx *bbolt.Tx, name []byte, list []entry, out *Rescued) error {
	size := map[string]int{} // of the text of each record so far
	for _, e := range list {
		id, ok := string(e.key), legible(string(name), e.key, e.value)
		if ok && string(name) == string(texts) {
			// Is it the next piece of its text?
			id = string(e.key[:len(e.key)-9])
			p, _ := readPiece(e.key, e.value) // it is well-formed
			ok = p.at == size[id]
			size[id] += p.size
		}

		// Is its record there?
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

// rebuildLists makes the lists of open and of due records from the records and results.
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
		if tx.Bucket(open).Get(number(h.seq)) != nil { // because of the damage, two records have the same number
			out.Partial = true
			return nil
		}
		out.Open++
		return tx.Bucket(open).Put(number(h.seq), append([]byte{}, id...))
	})
	return errors.Join(err, tx.Bucket(open).SetSequence(last))
}
