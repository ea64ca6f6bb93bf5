package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"inferplan/executor/durable"
)

// filled makes a store of n records, of which every third has text and an end.
func filled(t *testing.T, path string, n int) {
	t.Helper()
	s, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		id := fmt.Sprintf("r%04d", i)
		_, err := s.Accept(t.Context(), &durable.Record{ID: id, Class: "c", Data: []byte(fmt.Sprintf("%0300d", i))})
		if err == nil && i%3 == 0 {
			err = errors.Join(s.Append(t.Context(), id, 0, []byte("text"), 1), s.Finish(t.Context(), id, []byte("end")))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// recordPages returns the numbers of the pages in use that hold entries, without the root page, which lists the buckets:
// where it is depends on when the store committed, and without it nothing can be read.
func recordPages(t *testing.T, path string) (numbers []int) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, PreLoadFreelist: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	const buckets = 7
	if err := db.View(func(tx *bbolt.Tx) error {
		for number := 2; ; number++ {
			page, err := tx.Page(number)
			if err != nil || page == nil {
				return err
			}
			if page.Type == "leaf" && page.Count > buckets {
				numbers = append(numbers, number)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	return numbers
}

// A damaged file is found when it is opened, without a panic, and what can be read of it
// makes a store that works.
func TestDamagedStoreIsFoundAndRescued(t *testing.T) {
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole")
	const n = 200
	filled(t, whole, n)
	data, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	pages := recordPages(t, whole)
	pageOf := func(b []byte, number int) []byte { return b[number*4096 : (number+1)*4096] }
	damages := map[string]func(b []byte) []byte{
		"cut to half":        func(b []byte) []byte { return b[:len(b)/2] },
		"second half zeroed": func(b []byte) []byte { clear(b[len(b)/2:]); return b },
		"pages overwritten": func(b []byte) []byte {
			for _, number := range pages[len(pages)/3:][:5] {
				for i := range pageOf(b, number) {
					pageOf(b, number)[i] = byte(rng.Uint32())
				}
			}
			return b
		},
		"both metas lost": func(b []byte) []byte { clear(b[:8192]); return b },
		"page of its number": func(b []byte) []byte {
			copy(pageOf(b, pages[len(pages)/2]), pageOf(b, pages[len(pages)/4]))
			return b
		},
	}
	for i := range 12 {
		damages[fmt.Sprint("bits ", i)] = func(b []byte) []byte {
			for range 1 + i*10 {
				b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
			}
			return b
		}
	}
	for _, name := range slices.Sorted(maps.Keys(damages)) {
		damage := damages[name]
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store")
			if err := os.WriteFile(path, damage(append([]byte{}, data...)), 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := Open(path, Options{})
			if err == nil {
				s.Close()
			}
			opened := err
			to := path + ".rescued"
			got, err := Rescue(path, to, Options{})
			// Pages that nothing used; a bit in a value or a key is seen where it breaks its form.
			free := err == nil && !got.Partial && got.Records == n || strings.HasPrefix(name, "bits")
			if !errors.Is(opened, ErrDamaged) && !(opened == nil && free) {
				t.Errorf("opened with %v, expected that the file is damaged", opened)
			}
			if err != nil {
				if _, there := os.Stat(to); !errors.Is(err, ErrDamaged) || there == nil || name == "pages overwritten" || name == "page of its number" {
					t.Errorf("%v; the copy is there: %v", err, there == nil)
				}
				return
			}
			t.Logf("%+v", *got)
			if got.Records == 0 {
				t.Errorf("rescued %+v of %d records", *got, n)
			}
			s, err = Open(to, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for range got.Open {
				st, err := s.Claim(t.Context())
				if err != nil && !errors.Is(err, durable.ErrDamagedRecord) { // a text that lost its beginning
					t.Fatal(err)
				}
				if err := s.Finish(t.Context(), st.ID, []byte("end")); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := s.Accept(t.Context(), &durable.Record{ID: "new", Class: "c"}); err != nil {
				t.Error(err)
			}
		})
	}
}

// A store that is whole is rescued as a whole.
func TestRescueOfAWholeStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	filled(t, path, 30)
	got, err := Rescue(path, path+".copy", Options{})
	if err != nil || got.Partial || got.Records != 30 || got.Open != 20 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := Rescue(path, path+".copy", Options{}); err == nil {
		t.Error("what is there was overwritten")
	}
}

// An open record with damage is told once, and those behind it are handed out.
func TestDamagedRecordHoldsUpNobody(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "store"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, id := range []string{"first", "second"} {
		if _, err := s.Accept(t.Context(), &durable.Record{ID: id, Class: "c"}); err != nil {
			t.Fatal(err)
		}
		if err := s.Append(t.Context(), id, 0, []byte("text"), 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.file.db.Update(func(tx *bbolt.Tx) error {
		k, _ := tx.Bucket(textsBucket).Cursor().First()
		return tx.Bucket(textsBucket).Put(bytes.Clone(k), (&textPiece{size: 3, tokens: 1, data: []byte("text")}).encode())
	}); err != nil {
		t.Fatal(err)
	}
	if st, err := s.Claim(t.Context()); !errors.Is(err, durable.ErrDamagedRecord) || st == nil || st.ID != "first" {
		t.Errorf("the damaged one: %+v, %v", st, err)
	}
	if st, err := s.Claim(t.Context()); err != nil || st.ID != "second" {
		t.Errorf("the next: %+v, %v", st, err)
	}
	if err := s.Finish(t.Context(), "first", []byte("given up")); err != nil {
		t.Error(err)
	}
}
