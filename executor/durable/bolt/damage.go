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
func recoverDamage(read func() error) (err error) {
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
	return openRecovering(path, &bbolt.Options{Timeout: lockTimeout, ReadOnly: true})
}

// openRecovering opens a bbolt file at path. If it is damaged, the error is ErrDamaged, also where bbolt would panic.
func openRecovering(path string, opt *bbolt.Options) (db *bbolt.DB, err error) {
	err = recoverDamage(func() error {
		db, err = bbolt.Open(path, 0o600, opt)
		return err
	})
	switch {
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch):
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return db, err
}

// checkReadable returns ErrDamaged if anything in use in a store's file cannot be read: pages, the form of
// entries, the order of keys. It runs before the store opens the file.
func checkReadable(path string) error {
	db, err := readOnly(path)
	sum := byte(0) // reading a byte of every page of a value shows whether the page can be read
	if err == nil {
		err = checkFile(path, db.Info().PageSize)
	}
	if err == nil {
		// Read all entries.
		err = recoverDamage(func() error {
			return db.View(func(tx *bbolt.Tx) error {
				return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
					return b.ForEach(func(k, v []byte) error {
						if !isWellFormed(string(name), k, v) {
							return fmt.Errorf("%w: %s %q cannot be read", ErrDamaged, name, k)
						}
						for i := 0; i < len(v); i += os.Getpagesize() { // a value may span several pages
							sum ^= v[i]
						}
						return nil
					})
				})
			})
		})
	}
	if db != nil {
		err = errors.Join(err, recoverDamage(db.Close))
	}
	if err != nil {
		return fmt.Errorf("store %s: %w", path, err)
	}
	return nil
}

// checkFile returns ErrDamaged if a page in use of the file is damaged.
func checkFile(path string, pageSize int) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return checkPages(f, pageSize)
}

// isWellFormed returns true if an entry of a bucket (key k, value v) has the form in which the store writes it. A rescue
// of a damaged file copies only such entries. It does not decrypt.
func isWellFormed(bucket string, k, v []byte) bool {
	switch bucket {
	case string(recordsBucket):
		_, err := readHeader(string(k), v)
		return err == nil && (&durable.Record{ID: string(k)}).Check() == nil
	case string(endsBucket):
		return len(v) >= 8
	case string(textsBucket):
		if len(k) < 9 {
			return false
		}
		_, err := readPiece(k, v)
		return err == nil
	}
	return len(k) > 0 && len(k) < bbolt.MaxKeySize
}

// RescueReport counts what Rescue has copied.
type RescueReport struct {
	Records int  `json:"records"` // records with their text and result
	Open    int  `json:"open"`    // those of them without a result
	Values  int  `json:"values"`  // values of files and batches
	Partial bool `json:"partial"` // some of the file could not be read
}

// Rescue copies what can be read of a damaged store into a new one, which must not exist: the entries of each bucket
// from its start and from its end up to the damage. Text and results whose record is lost are dropped.
func Rescue(source, target string, opt Options) (*RescueReport, error) {
	if _, err := os.Stat(target); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("rescuing into %s: %w", target, cmp.Or(err, error(fs.ErrExist)))
	}
	db, err := readOnly(source)
	if err != nil {
		return nil, fmt.Errorf("store %s: nothing can be read: %w", source, err)
	}
	defer func() { _ = recoverDamage(db.Close) }()
	s, err := Open(target, opt)
	if err != nil {
		return nil, err
	}
	report := &RescueReport{}
	err = recoverDamage(func() error {
		return db.View(func(tx *bbolt.Tx) error { return s.copyBuckets(tx, report) })
	})
	if errors.Is(err, ErrDamaged) {
		report.Partial, err = true, nil
	}

	// If nothing at all could be read, leave no empty store behind.
	if err = errors.Join(err, s.Close()); err == nil && report.Partial && report.Records+report.Values == 0 {
		err = errors.Join(fmt.Errorf("store %s: nothing can be read: %w", source, ErrDamaged), os.Remove(target))
	}
	return report, err
}

// copyBuckets copies what can be read of a damaged file (records, results, texts and values) into the new store,
// and counts it in the report. The lists of open and of due records are made anew.
func (s *Store) copyBuckets(source *bbolt.Tx, report *RescueReport) error {
	for _, name := range [][]byte{recordsBucket, endsBucket, textsBucket, valuesBucket} {
		var b *bbolt.Bucket
		if err := recoverDamage(func() error { b = source.Bucket(name); return nil }); err != nil || b == nil {
			report.Partial = true
			continue
		}
		entries, complete := readableEntries(b)
		report.Partial = report.Partial || !complete
		if err := s.file.db.Update(func(tx *bbolt.Tx) error { return writeEntries(tx, name, entries, report) }); err != nil {
			return err
		}
	}
	return s.file.db.Update(func(tx *bbolt.Tx) error { return rebuildLists(tx, report) })
}

// entry is a key with its value.
type entry struct{ key, value []byte }

// readableEntries returns the entries of a bucket that can be read: from the start up to the damage, and from the
// end down to it. complete returns whether there is no damage.
func readableEntries(b *bbolt.Bucket) (list []entry, complete bool) {
	addEntry := func(k, v []byte) { list = append(list, entry{append([]byte{}, k...), append([]byte{}, v...)}) }
	if err := recoverDamage(func() error {
		c := b.Cursor()
		for k, v := c.First(); k != nil; k, v = c.Next() {
			addEntry(k, v)
		}
		return nil
	}); err == nil {
		return list, true
	}

	// Read from the end, down to the last entry that was read from the start.
	lastKey := ""
	if len(list) > 0 {
		lastKey = string(list[len(list)-1].key)
	}
	_ = recoverDamage(func() error {
		c := b.Cursor()
		for k, v := c.Last(); k != nil && string(k) > lastKey; k, v = c.Prev() {
			addEntry(k, v)
		}
		return nil
	})
	slices.SortFunc(list, func(a, b entry) int { return bytes.Compare(a.key, b.key) })
	return list, false
}

// writeEntries writes the entries of a bucket into the new file. It leaves out entries of a wrong form or without
// their record, and text after a gap, and notes that in the report.
func writeEntries(tx *bbolt.Tx, name []byte, list []entry, report *RescueReport) error {
	textBytes := map[string]int{} // of the text of each record so far
	for _, e := range list {
		id, ok := string(e.key), isWellFormed(string(name), e.key, e.value)
		if ok && string(name) == string(textsBucket) {
			// Is it the next piece of its text?
			id = string(e.key[:len(e.key)-9]) // the key ends with a zero byte and an offset of eight bytes
			p, _ := readPiece(e.key, e.value) // it is well-formed
			ok = p.offset == textBytes[id]
			textBytes[id] += p.size
		}

		// Is its record there?
		if ok && (string(name) == string(textsBucket) || string(name) == string(endsBucket)) {
			_, err := findHeader(tx, id)
			ok = err == nil
		}
		if !ok {
			report.Partial = true
			continue
		}
		switch string(name) {
		case string(recordsBucket):
			report.Records++
		case string(valuesBucket):
			report.Values++
		}
		if err := tx.Bucket(name).Put(e.key, e.value); err != nil {
			return err
		}
	}
	return nil
}

// rebuildLists fills, in a rescued file, the lists that follow from its records and results: of open records, by number,
// and of ended ones, by the time of their deletion. It counts the open ones in the report. It also sets the last number
// given.
func rebuildLists(tx *bbolt.Tx, report *RescueReport) error {
	lastSeq := uint64(0)
	err := tx.Bucket(recordsBucket).ForEach(func(id, _ []byte) error {
		h, err := findHeader(tx, string(id))
		if err != nil {
			return err
		}
		lastSeq = max(lastSeq, h.seq)
		if end := tx.Bucket(endsBucket).Get(id); len(end) >= 8 {
			return tx.Bucket(dueBucket).Put(dueKey(h.class, time.Unix(0, int64(decodeNumber(end))), string(id)), []byte{})
		}
		if tx.Bucket(openBucket).Get(encodeNumber(h.seq)) != nil { // because of the damage, two records have the same number
			report.Partial = true
			return nil
		}
		report.Open++
		return tx.Bucket(openBucket).Put(encodeNumber(h.seq), append([]byte{}, id...))
	})
	return errors.Join(err, tx.Bucket(openBucket).SetSequence(lastSeq))
}
