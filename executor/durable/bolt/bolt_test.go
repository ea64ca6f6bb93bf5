package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"inferplan/executor/durable"
	"inferplan/testkit/durabletest"
)

// place is a store of these tests.
func place(path string, opt Options) durabletest.Opener {
	return func() (durable.Store, error) { return Open(path, opt) }
}

func TestStoreConformsToContract(t *testing.T) {
	for _, c := range []struct {
		name string
		opt  Options
	}{{"plain", Options{}}, {"sealed", Options{Sealer: durabletest.Sealer(t, "a")}}} {
		t.Run(c.name, func(t *testing.T) {
			durabletest.Run(t, func(t *testing.T) durabletest.Place { return place(filepath.Join(t.TempDir(), "store"), c.opt) })
		})
	}
}

// What is stored with a key cannot be read in the file, and opens with that key alone.
func TestSealedStoreOpensWithItsKeyOnly(t *testing.T) {
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "store")
	s := place(path, Options{Sealer: durabletest.Sealer(t, "a")}).Open(t)
	secret := []byte("what the client asked")
	_, err := s.Accept(ctx, &durable.Record{ID: "a", Data: secret})
	if err = errors.Join(err, s.Append(ctx, "a", 0, secret, 1), s.Finish(ctx, "a", secret), s.Put(ctx, "file", secret), s.Close()); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil || bytes.Contains(file, secret) || bytes.Contains(file, secret[:8]) {
		t.Errorf("the file shows what is stored (%v)", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	for _, key := range []*durable.Sealer{nil, durabletest.Sealer(t, "b")} {
		if _, err := Open(path, Options{Sealer: key}); !errors.Is(err, durable.ErrWrongKey) {
			t.Errorf("opened with another key or none: %v", err)
		}
	}
	plain := filepath.Join(t.TempDir(), "store")
	if err := place(plain, Options{}).Open(t).Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(plain, Options{Sealer: durabletest.Sealer(t, "a")}); !errors.Is(err, durable.ErrWrongKey) {
		t.Errorf("a plain store was opened with a key: %v", err)
	}
}

// Values that were moved in the file are not taken.
func TestSealedInPlace(t *testing.T) {
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "store")
	s := place(path, Options{Sealer: durabletest.Sealer(t, "a")}).Open(t)
	if err := errors.Join(s.Put(ctx, "a", []byte("1")), s.Put(ctx, "b", []byte("2")), s.Close()); err != nil {
		t.Fatal(err)
	}
	edit(t, path, func(tx *bbolt.Tx) error {
		b := tx.Bucket(valuesBucket)
		return b.Put([]byte("b"), bytes.Clone(b.Get([]byte("a"))))
	})
	s = place(path, Options{Sealer: durabletest.Sealer(t, "a")}).Open(t)
	defer s.Close()
	if v, err := s.Value(ctx, "b"); !errors.Is(err, durable.ErrWrongKey) {
		t.Errorf("a moved value: %q, %v", v, err)
	}
}

// edit changes a file behind the store's back.
func edit(t *testing.T, path string, change func(*bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err == nil {
		err = errors.Join(db.Update(change), db.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestUnknownVersionsAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	s := place(path, Options{}).Open(t)
	if _, err := s.Accept(t.Context(), &durable.Record{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	set := func(v byte) {
		edit(t, path, func(tx *bbolt.Tx) error { return tx.Bucket(metaBucket).Put([]byte("version"), []byte{v}) })
	}
	set(version + 1)
	if _, err := Open(path, Options{}); err == nil || !strings.Contains(err.Error(), "use a newer program") {
		t.Errorf("a newer file: %v", err)
	}
	set(0)
	if _, err := Open(path, Options{}); err == nil || !strings.Contains(err.Error(), "upgrade from version 0") {
		t.Errorf("a file that cannot be upgraded: %v", err)
	}
	defer func(f func(*bbolt.Tx) error) { upgrades[0] = f }(upgrades[0])
	upgrades[0] = func(tx *bbolt.Tx) error { return tx.Bucket(valuesBucket).Put([]byte("upgraded"), []byte("yes")) }
	for range 2 { // the second time there is nothing to do
		s = place(path, Options{}).Open(t)
		v, err := s.Value(t.Context(), "upgraded")
		st, gerr := s.Get(t.Context(), "a")
		if err != nil || gerr != nil || string(v) != "yes" || st.ID != "a" {
			t.Errorf("after the upgrade: %q, %v, %v", v, err, gerr)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		upgrades[0] = func(*bbolt.Tx) error { return errors.New("upgraded again") }
	}
}

func TestNotAStore(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, bytes.Repeat([]byte("no store\n"), 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "other")
	edit(t, other, func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("theirs")); return err })
	for _, path := range []string{text, other, dir, filepath.Join(dir, "no", "such")} {
		if s, err := Open(path, Options{}); err == nil {
			s.Close()
			t.Errorf("%s was opened", path)
		}
	}
	path := filepath.Join(dir, "store")
	s := place(path, Options{}).Open(t)
	defer s.Close()
	if _, err := Open(path, Options{}); err == nil {
		t.Error("two processes would write one file")
	}
}

// Compaction gives the disk back, loses nothing, and others go on meanwhile.
func TestCompactionLosesNothing(t *testing.T) {
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "store")
	s := place(path, Options{}).Open(t).(*Store)
	defer s.Close()
	data := bytes.Repeat([]byte("x"), 200<<10)
	for i := range 120 {
		id := fmt.Sprint("old", i)
		_, err := s.Accept(ctx, &durable.Record{ID: id, Class: "c", Data: data})
		if err = errors.Join(err, s.Finish(ctx, id, nil)); err != nil {
			t.Fatal(err)
		}
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	var accepted atomic.Int64
	var wg sync.WaitGroup
	busy, stop := context.WithCancel(ctx)
	for w := range 4 {
		wg.Go(func() {
			for i := 0; busy.Err() == nil; i++ {
				id := fmt.Sprintf("w%d-%d", w, i)
				if _, err := s.Accept(ctx, &durable.Record{ID: id, Data: []byte(id)}); err != nil {
					t.Error(err)
					return
				}
				accepted.Add(1)
				if _, err := s.Get(ctx, id); err != nil {
					t.Error(err)
				}
			}
		})
	}
	n, err := s.Expire(ctx, time.Now().Add(time.Hour), func(string) time.Duration { return time.Minute })
	if err != nil || n != 120 {
		t.Errorf("%d expired, %v", n, err)
	}
	if err := s.Compact(ctx); err != nil {
		t.Error(err)
	}
	stop()
	wg.Wait()
	after, err := os.Stat(path)
	if err != nil || after.Size() > before.Size()/2 {
		t.Errorf("%d bytes before, %d after, %v", before.Size(), after.Size(), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := place(path, Options{}).Open(t)
	defer again.Close()
	for i := range accepted.Load() {
		if st, err := again.Claim(ctx); err != nil || string(st.Data) != st.ID {
			t.Fatalf("claim %d of %d: %v", i, accepted.Load(), err)
		}
	}
}

// A change that cannot be applied spares the others of its commit.
func TestFailedChangeSparesOthers(t *testing.T) {
	s := place(filepath.Join(t.TempDir(), "store"), Options{}).Open(t).(*Store)
	defer s.Close()
	ctx := t.Context()
	broken := errors.New("this one cannot be applied")
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			if i%4 == 0 {
				err := s.commits.update(ctx, func(tx *bbolt.Tx) error {
					return errors.Join(tx.Bucket(valuesBucket).Put([]byte("half"), []byte("written")), broken)
				}, nil)
				if !errors.Is(err, broken) {
					t.Errorf("the bad change: %v", err)
				}
				return
			}
			if _, err := s.Accept(ctx, &durable.Record{ID: fmt.Sprint(i)}); err != nil {
				t.Errorf("a change beside a bad one: %v", err)
			}
		})
	}
	wg.Wait()
	if v, err := s.Value(ctx, "half"); !errors.Is(err, durable.ErrNotFound) {
		t.Errorf("a change that failed is there: %q, %v", v, err)
	}
}

// BenchmarkAccept stores requests of 2 KB. one: a sync of the disk for each.
func BenchmarkAccept(b *testing.B) {
	for _, c := range []struct {
		name    string
		commits int
		sealed  bool
		writers int
	}{{"group/1", 0, false, 1}, {"group/16", 0, false, 16}, {"group/64", 0, false, 64}, {"group/256", 0, false, 256}, {"sealed/64", 0, true, 64}, {"one/64", 1, false, 64}} {
		b.Run(c.name, func(b *testing.B) {
			opt := Options{maxChanges: c.commits}
			if c.sealed {
				opt.Sealer = durabletest.Sealer(b, "a")
			}
			s := place(filepath.Join(b.TempDir(), "store"), opt).Open(b)
			defer s.Close()
			data := bytes.Repeat([]byte("r"), 2048)
			var next atomic.Int64
			var wg sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			for range c.writers {
				wg.Go(func() {
					for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
						if _, err := s.Accept(b.Context(), &durable.Record{ID: fmt.Sprintf("%012d", n), Data: data}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "accepts/s")
		})
	}
}
