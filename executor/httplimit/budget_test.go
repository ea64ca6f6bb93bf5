package httplimit

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

var quiet = slog.New(slog.DiscardHandler)

func TestBudgetIsFair(t *testing.T) {
	b := NewBudget(1000, quiet)
	b.Patience = 0
	var out []string
	open := func(client, name string, n int64) (*MemoryHold, *Error) {
		h := &MemoryHold{}
		h.Open(b, client, named{httptest.NewRecorder(), func() { out = append(out, name) }})
		return h, h.Grow(n)
	}
	greedy, _ := open("greedy", "greedy 1", 500)
	open("greedy", "greedy 2", 300)
	open("other", "other", 100)
	if _, err := open("greedy", "greedy 3", 600); err == nil || err.Reason != "memory" || out != nil {
		t.Errorf("the one that takes most got more: %v, cut off: %v", err, out)
	}
	if _, err := open("modest", "modest", 200); err != nil || fmt.Sprint(out) != "[greedy 1]" {
		t.Errorf("the modest one: %v, cut off: %v", err, out)
	}
	if err := greedy.Grow(1); err != ErrEvicted {
		t.Errorf("what was cut off grows: %v", err)
	}
	greedy.Close()
	if b.UsedBytes() != 600 {
		t.Errorf("%d bytes are used", b.UsedBytes())
	}
	// What has come whole stays.
	whole, _ := open("whole", "whole", 400)
	whole.MarkReceived()
	out = nil
	if _, err := open("late", "late", 350); err == nil || !b.NearlyFull() {
		t.Errorf("over the limit: %v, full: %v, cut off: %v", err, b.NearlyFull(), out)
	}
}

type named struct {
	http.ResponseWriter
	evicted func()
}

func (n named) SetReadDeadline(time.Time) error { n.evicted(); return nil }

// Who takes much waits while the memory is full, and is served when there is room;
// little is taken at once, also for a client of the same address.
func TestWhoTakesMuchWaits(t *testing.T) {
	b := NewBudget(1000, quiet)
	b.Patience = 10 * time.Second
	out := make(chan string, 10)
	open := func(client, name string) *MemoryHold {
		h := &MemoryHold{}
		h.Open(b, client, named{httptest.NewRecorder(), func() { out <- name }})
		return h
	}
	first := open("greedy", "first")
	if err := first.Grow(800); err != nil {
		t.Fatal(err)
	}
	second, waited := open("greedy", "second"), make(chan *Error, 1)
	go func() { waited <- second.Grow(600) }()
	settles(t, "nobody waits", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.freed != nil })
	for _, client := range []string{"greedy", "other"} {
		if err := open(client, "little").Grow(50); err != nil {
			t.Errorf("little of %s: %v", client, err)
		}
	}
	select {
	case err := <-waited:
		t.Errorf("who takes much did not wait: %v", err)
	case name := <-out:
		t.Errorf("%s was cut off", name)
	default:
	}
	first.Close()
	if err := <-waited; err != nil || b.UsedBytes() != 700 {
		t.Errorf("after there is room: %v, %d bytes", err, b.UsedBytes())
	}
	// Who is cut off while it waits hears of it at once.
	go func() { waited <- second.Grow(300) }()
	settles(t, "nobody waits", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.freed != nil })
	if err := open("third", "third").Grow(320); err != nil {
		t.Errorf("a fair share: %v", err)
	}
	if err := <-waited; err != ErrEvicted || <-out != "second" {
		t.Errorf("cut off: %v", err)
	}
	b.Patience = 10 * time.Millisecond
	if err := open("fourth", "fourth").Grow(2000); err == nil || err.Reason != "memory" {
		t.Errorf("more than there is: %v", err)
	}
}

// settles waits until a condition holds.
func settles(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}
