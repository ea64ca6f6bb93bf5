package durabletest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"inferplan/executor/durable"
)

// Place is where a store lives: Open opens it, again after it was closed.
type Place interface {
	Open(t testing.TB) durable.Store
}

// Opener is a Place by the function that opens it.
type Opener func() (durable.Store, error)

// Open opens the store or ends the test.
func (o Opener) Open(t testing.TB) durable.Store {
	t.Helper()
	s, err := o()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Sealer is one with a key that consists of one hexadecimal digit.
func Sealer(t testing.TB, digit string) *durable.Sealer {
	t.Helper()
	s, err := durable.NewSealer([]byte(strings.Repeat(digit, 64) + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// waitFor bounds what should happen at once.
const waitFor = time.Minute

// Run runs the suite. empty makes a place with nothing in it.
func Run(t *testing.T, empty func(t *testing.T) Place) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T, p Place)
	}{
		{"what is accepted is found", testRoundTrip},
		{"nothing is accepted twice", testTwice},
		{"claims come in order", testClaims},
		{"a claim waits", testClaimWaits},
		{"what was not finished comes again", testReopen},
		{"text grows at its end only", testAppend},
		{"a request ends once", testFinish},
		{"classes expire apart", testExpire},
		{"values", testValues},
		{"bad names", testNames},
		{"many at once", testMany},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, empty(t)) })
	}
}

func open(t *testing.T, p Place) (durable.Store, context.Context) {
	t.Helper()
	s := p.Open(t)
	t.Cleanup(func() { s.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), waitFor)
	t.Cleanup(cancel)
	return s, ctx
}

// must fails the test with the first error.
func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func accept(t *testing.T, ctx context.Context, s durable.Store, r durable.Record) {
	t.Helper()
	if fresh, err := s.Accept(ctx, &r); err != nil || !fresh {
		t.Fatalf("accept %s: fresh %t, %v", r.ID, fresh, err)
	}
}

func testRoundTrip(t *testing.T, p Place) {
	s, ctx := open(t, p)
	for i, data := range []string{"", "a request", strings.Repeat("large ", 40000), string([]byte{0, 255, 10})} {
		id := fmt.Sprintf("r-%d", i)
		accept(t, ctx, s, durable.Record{ID: id, Class: "chat room", Data: []byte(data)})
		st, err := s.Get(ctx, id)
		must(t, err)
		if st.ID != id || st.Class != "chat room" || string(st.Data) != data || st.Result != nil || len(st.Text) != 0 {
			t.Errorf("%s: got %d bytes, %+v", id, len(st.Data), st.Record.Class)
		}
	}
	if _, err := s.Get(ctx, "r"); !errors.Is(err, durable.ErrNotFound) {
		t.Errorf("an unknown id: %v", err)
	}
}

func testTwice(t *testing.T, p Place) {
	s, ctx := open(t, p)
	again := func() {
		t.Helper()
		if fresh, err := s.Accept(ctx, &durable.Record{ID: "a", Class: "other", Data: []byte("2")}); err != nil || fresh {
			t.Errorf("accepted again: fresh %t, %v", fresh, err)
		}
		st, err := s.Get(ctx, "a")
		must(t, err)
		if string(st.Data) != "1" || st.Class != "" {
			t.Errorf("a record was stored over: %q", st.Data)
		}
	}
	accept(t, ctx, s, durable.Record{ID: "a", Data: []byte("1")})
	again()
	if ids := claimed(t, ctx, s, 1); ids[0] != "a" {
		t.Errorf("claimed %v", ids)
	}
	again()
	none(t, s)
	// Tried again when it has ended, and after a restart.
	must(t, s.Finish(ctx, "a", []byte("end")))
	again()
	must(t, s.Close())
	s, ctx = open(t, p)
	again()
	none(t, s)
}

// none says that there is nothing to claim.
func none(t *testing.T, s durable.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if st, err := s.Claim(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("claim with nothing to claim: %+v, %v", st, err)
	}
}

// claimed claims n records.
func claimed(t *testing.T, ctx context.Context, s durable.Store, n int) (ids []string) {
	t.Helper()
	for range n {
		st, err := s.Claim(ctx)
		if err != nil {
			t.Fatalf("after %v: %v", ids, err)
		}
		ids = append(ids, st.ID)
	}
	return ids
}

func testClaims(t *testing.T, p Place) {
	s, ctx := open(t, p)
	for i := range 20 {
		accept(t, ctx, s, durable.Record{ID: fmt.Sprint(100 - i)}) // not in the order of ids
	}
	must(t, s.Finish(ctx, "98", []byte("cancelled before anybody took it over")))
	if got := claimed(t, ctx, s, 3); fmt.Sprint(got) != "[100 99 97]" {
		t.Errorf("claimed %v", got)
	}
	must(t, s.Release(ctx, "99"), s.Finish(ctx, "100", []byte("x")))
	// What is given back comes again, and nothing else comes twice.
	rest, again := claimed(t, ctx, s, 17), false
	seen := map[string]bool{"97": true}
	for _, id := range rest {
		if seen[id] {
			t.Errorf("%s was handed out twice", id)
		}
		seen[id] = true
		again = again || id == "99"
	}
	if !again {
		t.Errorf("what was released did not come again: %v", rest)
	}
	none(t, s)
	if err := s.Release(ctx, "nobody"); !errors.Is(err, durable.ErrNotFound) {
		t.Errorf("release of an unknown record: %v", err)
	}
}

func testClaimWaits(t *testing.T, p Place) {
	s, ctx := open(t, p)
	got := make(chan string, 1)
	go func() {
		st, err := s.Claim(ctx)
		if err != nil {
			got <- err.Error()
			return
		}
		got <- st.ID + string(st.Data)
	}()
	time.Sleep(20 * time.Millisecond)
	accept(t, ctx, s, durable.Record{ID: "late", Data: []byte("!")})
	if id := <-got; id != "late!" {
		t.Errorf("claimed %q", id)
	}
	closed := make(chan error, 1)
	go func() {
		_, err := s.Claim(ctx)
		closed <- err
	}()
	time.Sleep(20 * time.Millisecond)
	must(t, s.Close())
	if err := <-closed; !errors.Is(err, durable.ErrClosed) {
		t.Errorf("claim while the store closes: %v", err)
	}
	if _, err := s.Accept(ctx, &durable.Record{ID: "x"}); !errors.Is(err, durable.ErrClosed) {
		t.Errorf("accept after close: %v", err)
	}
	if _, err := s.Get(ctx, "late"); !errors.Is(err, durable.ErrClosed) {
		t.Errorf("get after close: %v", err)
	}
}

func testReopen(t *testing.T, p Place) {
	s, ctx := open(t, p)
	for i := range 6 {
		accept(t, ctx, s, durable.Record{ID: fmt.Sprint("r", i), Data: []byte{byte(i)}})
	}
	claimed(t, ctx, s, 4)
	must(t, s.Append(ctx, "r1", 0, []byte("one "), 2), s.Append(ctx, "r1", 4, []byte("two"), 1), s.Finish(ctx, "r2", []byte("done")), s.Close())
	s, ctx = open(t, p)
	var got []string
	for range 5 {
		st, err := s.Claim(ctx)
		must(t, err)
		got = append(got, fmt.Sprintf("%s:%s:%d", st.ID, st.Text, st.Tokens))
	}
	if fmt.Sprint(got) != "[r0::0 r1:one two:3 r3::0 r4::0 r5::0]" {
		t.Errorf("after a restart: %v", got)
	}
	none(t, s)
	if st, err := s.Get(ctx, "r2"); err != nil || string(st.Result) != "done" || time.Since(st.EndedAt).Abs() > time.Minute {
		t.Errorf("what had ended: %+v, %v", st, err)
	}
}

func testAppend(t *testing.T, p Place) {
	s, ctx := open(t, p)
	accept(t, ctx, s, durable.Record{ID: "a"})
	accept(t, ctx, s, durable.Record{ID: "a-b"})
	must(t, s.Append(ctx, "a-b", 0, []byte("other"), 1), s.Append(ctx, "a", 0, []byte("héllo"), 2))
	for _, at := range []int{0, 3, 7, 100} {
		if err := s.Append(ctx, "a", at, []byte("x"), 1); !errors.Is(err, durable.ErrConflict) {
			t.Errorf("text at %d: %v", at, err)
		}
	}
	must(t, s.Append(ctx, "a", 6, []byte{0, 0xff}, 3))
	st, err := s.Get(ctx, "a")
	must(t, err)
	if !bytes.Equal(st.Text, []byte("héllo\x00\xff")) || st.Tokens != 5 {
		t.Errorf("text %q, %d tokens", st.Text, st.Tokens)
	}
	must(t, s.Finish(ctx, "a", []byte("e")))
	if err := s.Append(ctx, "a", 8, []byte("x"), 1); !errors.Is(err, durable.ErrFinished) {
		t.Errorf("text after the end: %v", err)
	}
	if err := s.Append(ctx, "b", 0, []byte("x"), 1); !errors.Is(err, durable.ErrNotFound) {
		t.Errorf("text of an unknown record: %v", err)
	}
}

func testFinish(t *testing.T, p Place) {
	s, ctx := open(t, p)
	accept(t, ctx, s, durable.Record{ID: "a"})
	if err := s.Finish(ctx, "b", []byte("x")); !errors.Is(err, durable.ErrNotFound) {
		t.Errorf("the end of an unknown record: %v", err)
	}
	const ends = 8
	errs := make(chan error, ends)
	for i := range ends {
		go func() { errs <- s.Finish(ctx, "a", []byte{byte('0' + i)}) }()
	}
	won := 0
	for range ends {
		err := <-errs
		if err == nil {
			won++
		} else if !errors.Is(err, durable.ErrFinished) {
			t.Errorf("a later end: %v", err)
		}
	}
	st, err := s.Get(ctx, "a")
	must(t, err)
	if won != 1 || len(st.Result) != 1 {
		t.Errorf("%d ends were taken, the end is %q", won, st.Result)
	}
	none(t, s)
}

func testExpire(t *testing.T, p Place) {
	s, ctx := open(t, p)
	for i := range 6 {
		id := fmt.Sprint("r", i)
		accept(t, ctx, s, durable.Record{ID: id, Class: []string{"short", "long", "longer"}[i%3], Data: []byte(id)})
		must(t, s.Append(ctx, id, 0, []byte("text"), 1))
		if i != 3 { // of class short, not ended
			must(t, s.Finish(ctx, id, []byte("x")))
		}
	}
	keep := func(class string) time.Duration {
		return map[string]time.Duration{"short": time.Hour, "long": 3 * time.Hour, "longer": 5 * time.Hour}[class]
	}
	for _, c := range []struct {
		after time.Duration
		gone  int
		there string
	}{{0, 0, "012345"}, {2 * time.Hour, 1, "12345"}, {4 * time.Hour, 2, "235"}, {4 * time.Hour, 0, "235"}, {6 * time.Hour, 2, "3"}} {
		n, err := s.Expire(ctx, time.Now().Add(c.after), keep)
		must(t, err)
		there := ""
		for i := range 6 {
			if _, err := s.Get(ctx, fmt.Sprint("r", i)); err == nil {
				there += fmt.Sprint(i)
			} else if !errors.Is(err, durable.ErrNotFound) {
				t.Error(err)
			}
		}
		if n != c.gone || there != c.there {
			t.Errorf("after %v: %d expired, there are %s; expected %d and %s", c.after, n, there, c.gone, c.there)
		}
	}
	// The id of what is gone is free again.
	accept(t, ctx, s, durable.Record{ID: "r0"})
	if ids := claimed(t, ctx, s, 2); fmt.Sprint(ids) != "[r3 r0]" {
		t.Errorf("claimed %v", ids)
	}
}

func testValues(t *testing.T, p Place) {
	s, ctx := open(t, p)
	big := bytes.Repeat([]byte("0123456789abcdef"), durable.MaxValueBytes/16)
	must(t, s.Put(ctx, "file/b/0001", big), s.Put(ctx, "file/a/0001", []byte("a")), s.Put(ctx, "file/a/0000", nil), s.Put(ctx, "batch/1", []byte("x")))
	must(t, s.Put(ctx, "batch/1", []byte("y")))
	if err := s.Put(ctx, "big", append(big, 'x')); !errors.Is(err, durable.ErrTooLarge) {
		t.Errorf("too large a value: %v", err)
	}
	for round := range 2 {
		for key, want := range map[string]string{"file/b/0001": string(big), "file/a/0000": "", "batch/1": "y"} {
			got, err := s.Value(ctx, key)
			if err != nil || string(got) != want {
				t.Errorf("round %d, %s: %d bytes, %v", round, key, len(got), err)
			}
		}
		list, err := s.Keys(ctx, "file/a/")
		must(t, err)
		if fmt.Sprint(list) != "[file/a/0000 file/a/0001]" {
			t.Errorf("keys: %v", list)
		}
		if list, err = s.Keys(ctx, ""); err != nil || len(list) != 4 {
			t.Errorf("all keys: %v, %v", list, err)
		}
		if round == 0 {
			must(t, s.Close())
			s, ctx = open(t, p)
		}
	}
	must(t, s.Delete(ctx, "batch/1"), s.Delete(ctx, "nothing"))
	if _, err := s.Value(ctx, "batch/1"); !errors.Is(err, durable.ErrNotFound) {
		t.Errorf("what was deleted: %v", err)
	}
	if list, err := s.Keys(ctx, "batch"); err != nil || len(list) != 0 {
		t.Errorf("keys of what was deleted: %v, %v", list, err)
	}
}

func testNames(t *testing.T, p Place) {
	s, ctx := open(t, p)
	for _, id := range []string{"", "a.b", "a b", "ä", "*", strings.Repeat("x", 65)} {
		if _, err := s.Accept(ctx, &durable.Record{ID: id}); err == nil {
			t.Errorf("id %q was taken", id)
		}
		if _, err := s.Get(ctx, id); !errors.Is(err, durable.ErrNotFound) {
			t.Errorf("id %q: %v", id, err)
		}
		if err := s.Put(ctx, id, nil); err == nil {
			t.Errorf("key %q was taken", id)
		}
	}
	if _, err := s.Accept(ctx, &durable.Record{ID: "a", Class: "a\x00b"}); err == nil {
		t.Error("a class with a zero byte was taken")
	}
	none(t, s)
}

func testMany(t *testing.T, p Place) {
	s, ctx := open(t, p)
	const writers, each, holders = 16, 20, 4
	var mu sync.Mutex
	claims := map[string]int{}
	var wg sync.WaitGroup
	done, stop := context.WithCancel(ctx)
	for range holders {
		wg.Go(func() {
			for {
				st, err := s.Claim(done)
				if err != nil {
					return
				}
				err = errors.Join(s.Append(ctx, st.ID, 0, []byte("text of "+st.ID), 3), s.Finish(ctx, st.ID, st.Data))
				mu.Lock()
				claims[st.ID]++
				if err != nil {
					t.Error(err)
				}
				if len(claims) == writers*each {
					stop()
				}
				mu.Unlock()
			}
		})
	}
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				id := fmt.Sprintf("w%d-%d", w, i)
				if _, err := s.Accept(ctx, &durable.Record{ID: id, Data: []byte(id)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	stop()
	for w := range writers {
		for i := range each {
			id := fmt.Sprintf("w%d-%d", w, i)
			st, err := s.Get(ctx, id)
			if err != nil || claims[id] != 1 || string(st.Result) != id || string(st.Text) != "text of "+id {
				t.Fatalf("%s: claimed %d times, %+v, %v", id, claims[id], st, err)
			}
		}
	}
	none(t, s)
}
