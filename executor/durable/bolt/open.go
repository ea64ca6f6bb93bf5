package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"inferplan/executor/durable"
)

// Options configure a store.
type Options struct {
	Sealer *durable.Sealer  // if nil, data is stored unencrypted
	Log    *slog.Logger     // slog.Default if nil
	Now    func() time.Time // clock of the ends of requests; durable.SteadyClock if nil

	maxChanges int // most changes in a commit, for measurements; 0 stands for maxCommitChanges
}

// Store is a durable.Store in a file.
type Store struct {
	file    storeFile
	commits committer
	claims  claims
}

// storeFile is the open file of a store.
type storeFile struct {
	path    string
	opt     Options
	closing chan struct{} // closed when the store closes

	swapMu sync.RWMutex // held for writing while the file is replaced
	db     *bbolt.DB
}

// version is the version of the file's layout.
const version = 1

// upgrades are functions that bring a file from the version of their index to the next one.
var upgrades = [version]func(*bbolt.Tx) error{
	0: func(*bbolt.Tx) error { return errors.New("no such version was ever written") },
}

// lockTimeout bounds the wait for another process to close the file.
const lockTimeout = 2 * time.Second

// Open opens the store's file, or creates it. Only one process at a time can have it open. It returns ErrDamaged if
// the file cannot be read completely.
func Open(path string, opt Options) (*Store, error) {
	if opt.Log == nil {
		opt.Log = slog.Default()
	}
	if opt.Now == nil {
		opt.Now = durable.SteadyClock(time.Now)
	}
	s := &Store{file: storeFile{path: path, opt: opt, closing: make(chan struct{})}}
	s.commits = committer{file: &s.file, changes: make(chan *pendingChange), stopped: make(chan struct{})}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if err := s.file.create(); err != nil {
			return nil, err
		}
	}

	// bbolt must not see a damaged file.
	if err := checkReadable(path); err != nil {
		return nil, err
	}
	if err := s.file.open(); err != nil {
		return nil, err
	}

	// All open records can be claimed.
	err := s.file.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(openBucket).ForEach(func(k, v []byte) error {
			s.claims.add(decodeNumber(k), string(v))
			return nil
		})
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("store %s: %w", path, err), s.file.db.Close())
	}
	go s.commits.commitLoop()
	return s, nil
}

// openFile opens a file for the store. The list of free pages is not written with every commit; it is computed when
// the file is opened.
func openFile(path string) (*bbolt.DB, error) {
	db, err := openRecovering(path, &bbolt.Options{Timeout: lockTimeout, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", path, err)
	}
	return db, nil
}

// create makes the file of an empty store: its buckets, its version, and a known text sealed with the key, by which a
// wrong key is noticed later. It writes the file under another name and moves it into place, so that no half of it is
// ever seen.
func (s *storeFile) create() error {
	tempPath := s.path + ".new"
	if err := os.Remove(tempPath); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("store %s: %w", s.path, err)
	}
	db, err := openFile(tempPath)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, name := range buckets {
			if _, err := tx.CreateBucket(name); err != nil {
				return err
			}
		}
		check, err := s.seal("check", []byte("inferplan"))
		if err != nil {
			return err
		}
		return errors.Join(tx.Bucket(metaBucket).Put([]byte("version"), []byte{version}), tx.Bucket(metaBucket).Put([]byte("check"), check))
	})
	if err = errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("store %s: %w", s.path, err)
	}
	return s.moveIntoPlace(tempPath)
}

// moveIntoPlace renames a file to the store's path, and syncs the folder, so that a crash does not undo it.
func (s *storeFile) moveIntoPlace(tempPath string) error {
	if err := os.Rename(tempPath, s.path); err != nil {
		return fmt.Errorf("store %s: %w", s.path, err)
	}
	dir, err := os.Open(filepath.Dir(s.path))
	if err != nil {
		return fmt.Errorf("store %s: %w", s.path, err)
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("store %s: %w", s.path, err)
	}
	return nil
}

// open opens the store's file, checks that it is one of this program and of this key, and upgrades it if it has an older
// version. It sets s.db.
func (s *storeFile) open() error {
	db, err := openFile(s.path)
	if err != nil {
		return err
	}
	s.db = db
	outdated := false
	err = db.View(func(tx *bbolt.Tx) error {
		if err := s.checkMeta(tx); err != nil {
			return err
		}
		outdated = tx.Bucket(metaBucket).Get([]byte("version"))[0] < version
		return nil
	})
	if err == nil && outdated {
		err = db.Update(upgrade)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("store %s: %w", s.path, err), db.Close())
	}
	return nil
}

// checkMeta returns an error if the file is no store, has a newer version than this program, or is sealed with
// another key. A store keeps a known text under "check" for that.
func (s *storeFile) checkMeta(tx *bbolt.Tx) error {
	b := tx.Bucket(metaBucket)
	if b == nil || len(b.Get([]byte("version"))) != 1 {
		return errors.New("the file is not a store of inferplan")
	}
	if v := b.Get([]byte("version"))[0]; v > version {
		return fmt.Errorf("the file has version %d, this program knows versions up to %d: use a newer program", v, version)
	}
	check, err := s.opt.Sealer.Open("check", b.Get([]byte("check")))
	if err == nil && !bytes.Equal(check, []byte("inferplan")) {
		err = durable.ErrWrongKey
	}
	return err
}

// upgrade brings a file of an older version to the current one in transaction tx, one version at a time: upgrades[v]
// turns version v into v + 1.
func upgrade(tx *bbolt.Tx) error {
	b := tx.Bucket(metaBucket)
	for v := b.Get([]byte("version"))[0]; v < version; v++ {
		if err := upgrades[v](tx); err != nil {
			return fmt.Errorf("upgrade from version %d: %w", v, err)
		}
		if err := b.Put([]byte("version"), []byte{v + 1}); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the store, after the commit that is under way. Changes that still wait fail with durable.ErrClosed.
func (s *Store) Close() error {
	s.commits.close()
	s.file.swapMu.Lock()
	defer s.file.swapMu.Unlock()
	if err := s.file.db.Close(); err != nil {
		return fmt.Errorf("store %s: %w", s.file.path, err)
	}
	return nil
}

// seal encrypts data for a location.
func (s *storeFile) seal(location string, data []byte) ([]byte, error) {
	return s.opt.Sealer.Seal(location, data)
}

// unseal decrypts data. The result outlives the transaction in which the data was read.
func (s *storeFile) unseal(location string, data []byte) ([]byte, error) {
	if s.opt.Sealer == nil {
		return append([]byte{}, data...), nil
	}
	return s.opt.Sealer.Open(location, data)
}

// view calls read with a read transaction. While the file is exchanged for a compacted one, it waits. Once the store is
// closing, it returns durable.ErrClosed.
func (s *storeFile) view(read func(*bbolt.Tx) error) error {
	s.swapMu.RLock()
	defer s.swapMu.RUnlock()
	select {
	case <-s.closing:
		return durable.ErrClosed
	default:
	}
	return s.db.View(read)
}
