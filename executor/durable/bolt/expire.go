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
	maxExpired      = 1000      // most records that one commit deletes
	minCompactBytes = 16 << 20  // smaller files are not compacted
	compactStep     = 256 << 10 // bytes of a transaction of the compacted copy
)

// Expire implements durable.Store: it deletes the ended records whose retention is over at the time now, in
// several transactions, and returns their number. It also compacts the file if most of it is free.
func (s *Store) Expire(ctx context.Context, now time.Time, retention func(class string) time.Duration) (int, error) {
	total := 0
	for {
		n := 0
		err := s.commits.update(ctx, func(tx *bbolt.Tx) (err error) {
			n, err = expire(tx, now, retention)
			return err
		}, nil)
		if err != nil {
			return total, err
		}
		if total += n; n < maxExpired {
			break
		}
	}
	if total > 0 && s.file.isMostlyFree() {
		return total, s.Compact(ctx)
	}
	return total, nil
}

// expire deletes at most maxExpired ended records whose retention is over, and returns their number. The key of a
// due record is its class, a zero byte, the time when it ended, and its id.
func expire(tx *bbolt.Tx, now time.Time, retention func(class string) time.Duration) (int, error) {
	var expiredKeys [][]byte
	c := tx.Bucket(dueBucket).Cursor()
	for k, _ := c.First(); k != nil && len(expiredKeys) < maxExpired; {
		class, endAndID, ok := bytes.Cut(k, []byte{0})
		if !ok || len(endAndID) < 8 {
			return 0, errCorrupt
		}

		// The list is sorted by class and then by time, so the rest of the class is younger.
		if now.Sub(time.Unix(0, int64(decodeNumber(endAndID)))) < retention(string(class)) {
			k, _ = c.Seek(append(bytes.Clone(class), 1))
			continue
		}
		expiredKeys = append(expiredKeys, bytes.Clone(k))
		k, _ = c.Next()
	}
	for _, k := range expiredKeys {
		_, endAndID, _ := bytes.Cut(k, []byte{0})
		if err := errors.Join(removeRecord(tx, string(endAndID[8:])), tx.Bucket(dueBucket).Delete(k)); err != nil {
			return 0, err
		}
	}
	return len(expiredKeys), nil
}

// removeRecord deletes a record with the pieces of its text and its result, in transaction tx. The keys are collected
// first, because a bucket must not change under its cursor.
func removeRecord(tx *bbolt.Tx, id string) error {
	prefix, pieces := textPrefix(id), [][]byte(nil)
	c := tx.Bucket(textsBucket).Cursor()
	for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = c.Next() {
		pieces = append(pieces, bytes.Clone(k))
	}
	for _, k := range pieces {
		if err := tx.Bucket(textsBucket).Delete(k); err != nil {
			return err
		}
	}
	return errors.Join(tx.Bucket(recordsBucket).Delete([]byte(id)), tx.Bucket(endsBucket).Delete([]byte(id)))
}

// isMostlyFree returns whether more than three quarters of the file are free, so that it is worth compacting.
// Small files are not.
func (s *storeFile) isMostlyFree() bool {
	s.swapMu.RLock()
	defer s.swapMu.RUnlock()
	info, err := os.Stat(s.path)
	if err != nil || info.Size() < minCompactBytes {
		return false
	}
	stats := s.db.Stats()
	freeBytes := int64(stats.FreePageN+stats.PendingPageN) * int64(s.db.Info().PageSize)
	return freeBytes > info.Size()/4*3
}

// Compact writes the file again without its free pages. Changes wait until it is done, readers only while the files
// are exchanged.
func (s *Store) Compact(ctx context.Context) error {
	return s.commits.send(ctx, &pendingChange{runAlone: s.file.compact, result: make(chan error, 1)})
}

// errStaleFile is returned when the file in place is no longer the one that is open.
var errStaleFile = errors.New("change to the compacted store")

// compact replaces the file by a copy without free pages. commitLoop runs it between two commits, so that nothing is
// written meanwhile; readers wait only while the file is exchanged. If the exchange fails halfway, it returns
// errStaleFile, and the store has to be opened again.
func (s *storeFile) compact() error {
	tempPath := s.path + ".new"
	if err := os.RemoveAll(tempPath); err != nil {
		return fmt.Errorf("compact the store: %w", err)
	}
	compacted, err := openFile(tempPath)
	if err != nil {
		return err
	}
	compacted.NoSync = true // a copy that is not complete is thrown away
	err = bbolt.Compact(compacted, s.db, compactStep)
	if err == nil {
		err = compacted.Sync()
	}
	if err = errors.Join(err, compacted.Close()); err != nil {
		return errors.Join(fmt.Errorf("compact the store: %w", err), os.Remove(tempPath))
	}
	s.swapMu.Lock()
	defer s.swapMu.Unlock()
	err = s.moveIntoPlace(tempPath)
	// From here on the file in place is the new one, and the store continues with it.
	if err = errors.Join(err, s.db.Close()); err == nil {
		s.db, err = openFile(s.path)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errStaleFile, err)
	}
	return nil
}
