package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.etcd.io/bbolt"
)

const (
	mostExpired = 1000      // most records that one commit deletes
	smallFile   = 16 << 20  // smaller files are not compacted
	compactStep = 256 << 10 // bytes of a transaction of the compacted copy
)

// Expire implements durable.Store. It also compacts the file if most of it is free.
func (s *Store) Expire(ctx context.Context, now time.Time, keep func(class string) time.Duration) (int, error) {
	total := 0
	for {
		n := 0
		err := s.commits.update(ctx, func(tx *bbolt.Tx) (err error) {
			n, err = expire(tx, now, keep)
			return err
		}, nil)
		if err != nil {
			return total, err
		}
		if total += n; n < mostExpired {
			break
		}
	}
	if total > 0 && s.wasteful() {
		return total, s.Compact(ctx)
	}
	return total, nil
}

// expire deletes at most maxExpired records whose retention has ended, and returns their number.
func expire(tx *bbolt.Tx, now time.Time, keep func(class string) time.Duration) (int, error) {
	var gone [][]byte
	c := tx.Bucket(due).Cursor()
	for k, _ := c.First(); k != nil && len(gone) < mostExpired; {
		class, rest, ok := bytes.Cut(k, []byte{0})
		if !ok || len(rest) < 8 {
			return 0, errCorrupt
		}

		// The list is sorted by class and then by time, so the rest of the class is younger.
		if now.Sub(time.Unix(0, int64(sequence(rest)))) < keep(string(class)) {
			k, _ = c.Seek(append(bytes.Clone(class), 1))
			continue
		}
		gone = append(gone, bytes.Clone(k))
		k, _ = c.Next()
	}
	for _, k := range gone {
		_, rest, _ := bytes.Cut(k, []byte{0})
		if err := errors.Join(remove(tx, string(rest[8:])), tx.Bucket(due).Delete(k)); err != nil {
			return 0, err
		}
	}
	return len(gone), nil
}

// removeRecord deletes a record with its text and result.
func remove(tx *bbolt.Tx, id string) error {
	prefix, pieces := textPrefix(id), [][]byte(nil)
	c := tx.Bucket(texts).Cursor()
	for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = c.Next() {
		pieces = append(pieces, bytes.Clone(k))
	}
	for _, k := range pieces {
		if err := tx.Bucket(texts).Delete(k); err != nil {
			return err
		}
	}
	return errors.Join(tx.Bucket(records).Delete([]byte(id)), tx.Bucket(ends).Delete([]byte(id)))
}

// isMostlyFree reports whether three quarters of a large file are free.
func (s *file) wasteful() bool {
	s.swap.RLock()
	defer s.swap.RUnlock()
	info, err := os.Stat(s.path)
	if err != nil || info.Size() < smallFile {
		return false
	}
	stats := s.db.Stats()
	free := int64(stats.FreePageN+stats.PendingPageN) * int64(s.db.Info().PageSize)
	return free > info.Size()/4*3
}

// Compact writes the file again without its free pages. Changes wait until it is done, readers only while the files
// are exchanged.
func (s *Store) Compact(ctx context.Context) error {
	return s.commits.send(ctx, &change{alone: s.compact, done: make(chan error, 1)})
}

// errStaleFile is returned when the file in place is no longer the one that is open.
var errLeft = errors.New("change to the compacted store")

// compact writes a compacted copy and puts it in place. It runs between two commits.
func (s *file) compact() error {
	beside := s.path + ".new"
	if err := os.RemoveAll(beside); err != nil {
		return fmt.Errorf("compact the store: %w", err)
	}
	to, err := openFile(beside)
	if err != nil {
		return err
	}
	to.NoSync = true // a copy that is not complete is thrown away
	err = bbolt.Compact(to, s.db, compactStep)
	if err == nil {
		err = to.Sync()
	}
	if err = errors.Join(err, to.Close()); err != nil {
		return errors.Join(fmt.Errorf("compact the store: %w", err), os.Remove(beside))
	}
	s.swap.Lock()
	defer s.swap.Unlock()
	err = s.move(beside)
	// From here on the file in place is the new one, and the store continues with it.
	if err = errors.Join(err, s.db.Close()); err == nil {
		s.db, err = openFile(s.path)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errLeft, err)
	}
	return nil
}
