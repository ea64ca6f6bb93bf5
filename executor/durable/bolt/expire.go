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
	mostExpired = 1000      // records that one commit deletes
	smallFile   = 16 << 20  // that is not worth compacting
	compactStep = 256 << 10 // bytes of a transaction of the compacted copy
)

// Expire deletes records whose time is over, and compacts the file when most of it is
// free.
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

func expire(tx *bbolt.Tx, now time.Time, keep func(class string) time.Duration) (int, error) {
	var gone [][]byte
	c := tx.Bucket(due).Cursor()
	for k, _ := c.First(); k != nil && len(gone) < mostExpired; {
		class, rest, ok := bytes.Cut(k, []byte{0})
		if !ok || len(rest) < 8 {
			return 0, errCorrupt
		}
		if now.Sub(time.Unix(0, int64(sequence(rest)))) < keep(string(class)) {
			k, _ = c.Seek(append(bytes.Clone(class), 1)) // the rest of the class is younger
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

// remove deletes all that there is of a record.
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

// wasteful says whether three quarters of a large file are free.
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

// Compact writes the file anew without what is free. Changes wait meanwhile, and so do
// readers at its end.
func (s *Store) Compact(ctx context.Context) error {
	return s.commits.send(ctx, &change{alone: s.compact, done: make(chan error, 1)})
}

// errLeft: the file in place is not the one that is open.
var errLeft = errors.New("change to the compacted store")

func (s *file) compact() error {
	beside := s.path + ".new"
	if err := os.RemoveAll(beside); err != nil {
		return fmt.Errorf("compact the store: %w", err)
	}
	to, err := openFile(beside)
	if err != nil {
		return err
	}
	to.NoSync = true // what is half done is thrown away
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
	// From here on the file in place is another one, and the store goes on with it.
	if err = errors.Join(err, s.db.Close()); err == nil {
		s.db, err = openFile(s.path)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errLeft, err)
	}
	return nil
}
