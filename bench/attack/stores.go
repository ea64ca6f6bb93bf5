package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"inferplan/bench/instrument"
	"inferplan/formats/seeded"
	"inferplan/testkit/llm/fake"
)

// keeper is `plan serve` of a plan of queues, in front of a server of language models that
// answers at once.
type keeper struct {
	*attack
	plan  string
	model *fake.Server
}

// stores damages the file of accepted requests, and takes the room on its disk away.
func (a *attack) stores(r *instrument.Run) error {
	plan, err := queuePlan(a.Folder, 1)
	if err != nil {
		return err
	}
	model, err := fake.Start(fake.Options{Models: []string{textModel}, Slots: sequences, Token: time.Millisecond})
	if err != nil {
		return err
	}
	defer model.Stop()
	k := &keeper{a, plan, model}
	return errors.Join(k.damaged(r), k.noRoom(r))
}

// start starts `plan serve` with a file of requests. If it ends instead, start returns the ended server and an error.
func (k *keeper) start(ctx context.Context, file string) (*server, error) {
	s, err := k.Serve(ctx, k.plan, "--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--queue", file, "--server", k.model.URL())
	return &server{s}, err
}

// fill makes a file of so many requests that were answered, and of some that were not:
// the server is killed while it answers.
func (k *keeper) fill(ctx context.Context, file string, n int) error {
	s, err := k.start(ctx, file)
	if err != nil {
		return err
	}
	defer s.Kill()
	if got := askAll(ctx, s.HTTP, n); got["right"] != n {
		return fmt.Errorf("filling the file of requests: %v", got)
	}
	var late sync.WaitGroup
	for i := range 8 * sequences {
		late.Go(func() { keep(ctx, s.HTTP, fmt.Sprint("late ", i), 500) })
	}
	time.Sleep(50 * time.Millisecond)
	s.Kill()
	late.Wait()
	return nil
}

// keep sends a request that is kept, and returns its status, and after how long it may come again. The status is 0 if there is no answer.
func keep(ctx context.Context, address, prompt string, tokens int) (status int, after string) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	status, header, _, err := (&textRequest{prompt: prompt, tokens: tokens, store: true}).send(ctx, address)
	if err != nil {
		return 0, ""
	}
	return status, header.Get("Retry-After")
}

const pageSize = 4096

// damages are the ways in which a file is damaged. None leaves it as it is.
var damages = []func(rng *rand.Rand, b []byte) []byte{
	func(rng *rand.Rand, b []byte) []byte { return b[:rng.IntN(len(b))] },
	func(rng *rand.Rand, b []byte) []byte { clear(b[rng.IntN(len(b)):]); return b },
	func(rng *rand.Rand, b []byte) []byte { // pages of rubbish
		at := rng.IntN(len(b))
		for i := at; i < min(at+(1+rng.IntN(20))*pageSize, len(b)); i++ {
			b[i] = byte(rng.Uint32())
		}
		return b
	},
	func(rng *rand.Rand, b []byte) []byte { // a page where another belongs
		pages := len(b) / pageSize
		copy(b[rng.IntN(pages)*pageSize:], b[rng.IntN(pages)*pageSize:][:pageSize])
		return b
	},
	func(rng *rand.Rand, b []byte) []byte { // single bits
		for range 1 + rng.IntN(200) {
			b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
		}
		return b
	},
	func(_ *rand.Rand, b []byte) []byte { clear(b[:2*pageSize]); return b },
}

// damaged starts the server with damaged files, reads out what is left of them, and starts
// it with that.
func (k *keeper) damaged(r *instrument.Run) error {
	whole, left := filepath.Join(k.Folder, "whole.db"), filepath.Join(k.Folder, "left.db")
	const requests = 300
	if err := k.fill(r.Ctx, whole, requests); err != nil {
		return err
	}
	data, err := os.ReadFile(whole)
	if err != nil {
		return err
	}
	rng := seeded.New(k.seed, "damage")
	var wrong []string
	n, served, lost, rescued, records := k.count(120), 0, 0, 0, 0
	for i := range n {
		file := filepath.Join(k.Folder, fmt.Sprintf("damaged-%d.db", i))
		damage := i % len(damages)
		if err := os.WriteFile(file, damages[damage](rng, slices.Clone(data)), 0o600); err != nil {
			return err
		}
		fail := func(format string, args ...any) {
			wrong = append(wrong, fmt.Sprintf("file %d, damage %d: ", i, damage)+fmt.Sprintf(format, args...))
		}
		if fault := k.tryFile(r.Ctx, file, true); fault != "" {
			fail("%s", fault)
		}
		e := k.call(r.Ctx, k.Folder, "rescue", file, "-o", left, "--json")
		switch {
		case strings.Contains(e.said, "panic") || strings.Contains(e.said, "fatal error") || e.code != 0 && e.code != 1 && e.code != 5:
			fail("plan rescue ends with %d: %.300s", e.code, e.said)
		case e.code == 5:
			lost++
		default:
			rescued++
			var summary struct{ Records int }
			if err := json.Unmarshal([]byte(e.out), &summary); err != nil {
				fail("plan rescue --json: %v: %.300s", err, e.out)
			}
			records += summary.Records
			if fault := k.tryFile(r.Ctx, left, false); fault != "" {
				fail("what plan rescue wrote: %s", fault)
			} else {
				served++
			}
		}
		os.Remove(file)
		os.Remove(left)
	}
	for _, fault := range wrong {
		fmt.Fprintf(r.Log, "    FAILED %s\n", fault)
	}
	none(r, "damaged files of accepted requests: plan serve or plan rescue panics, ends otherwise than with 5, or what was rescued is not served", len(wrong), n,
		"of %d nothing could be read, the other %d were served again, with %d of %d requests in the mean", lost, served, records/max(rescued, 1), requests+8*sequences)
	return nil
}

// tryFile starts the server with a file and returns what is wrong with how that ends. A file
// that may be damaged is refused with 5 and a hint, or served.
func (k *keeper) tryFile(ctx context.Context, file string, damaged bool) (fault string) {
	s, err := k.start(ctx, file)
	if err != nil {
		if code := s.ExitCode(); s.panics() > 0 || !damaged || code != 5 || !strings.Contains(strings.Join(s.Lines(), "\n"), "plan rescue") {
			return fmt.Sprintf("plan serve ends with %d: %.300s", code, s.Tail())
		}
		return ""
	}
	if status, _ := keep(ctx, s.HTTP, "after the damage", 2); status != http.StatusOK {
		fault = fmt.Sprintf("a request is answered with %d", status)
	}
	if err := s.end(); err != nil {
		fault = err.Error()
	}
	return fault
}

// noRoom fills the disk of the file and makes room again.
func (k *keeper) noRoom(r *instrument.Run) error {
	disk, ok, err := k.mountSmall(r, "queue", "512k")
	if !ok {
		return err
	}
	defer func() { _ = unix.Unmount(disk, 0) }()
	s, err := k.start(r.Ctx, filepath.Join(disk, "requests.db"))
	if err != nil {
		return err
	}
	defer s.Kill()
	var wrong []string
	check := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	look := func(when string, status int, full float64) {
		found := 0
		if resp, err := http.Get("http://" + s.HTTP + "/health"); err == nil {
			resp.Body.Close()
			found = resp.StatusCode
		}
		m, err := s.scrape()
		check(err == nil && found == status && m["inferplan_store_full"] == full, "%s: health %d, store_full %g, %v", when, found, m["inferplan_store_full"], err)
	}
	const n = 100
	answers := tally{}
	for i := range n {
		status, after := keep(r.Ctx, s.HTTP, fmt.Sprint(i, strings.Repeat(" long", 2000)), 2)
		answers[fmt.Sprint(status)]++
		check(status == http.StatusOK || status == http.StatusServiceUnavailable && after != "", "request %d: %d, Retry-After %q", i, status, after)
	}
	check(answers["503"] > 0 && answers["200"] > 0, "answers %v", answers)
	look("while the disk is full", http.StatusServiceUnavailable, 1)
	said := strings.Count(strings.Join(s.Lines(), "\n"), "level=ERROR")
	check(said >= 1 && said <= 3, "%d lines of log", said)
	if err := unix.Mount("none", disk, "tmpfs", unix.MS_REMOUNT, "size=64m"); err != nil {
		return err
	}
	look("with room", http.StatusOK, 0)
	status, _ := keep(r.Ctx, s.HTTP, "with room", 2)
	check(status == http.StatusOK, "with room: %d", status)
	err = s.end()
	check(err == nil, "the end: %v", err)
	state(r, "full disk under accepted requests: other answers than 200 and 503 with Retry-After, readiness, metric and log that do not say so, no service once there is room", "none",
		float64(len(wrong)), fmt.Sprintf("of %d requests and 5 looks", n), len(wrong) == 0, "%v; %d lines of log%s", answers, said, strings.Join(wrong, "; "))
	return nil
}
