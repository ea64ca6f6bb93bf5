package bolt

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"inferplan/executor/durable"
)

// child is the variable that makes this program one that writes to the store in the
// folder that it names, and tells on its standard output what was acknowledged.
const child = "INFERPLAN_STORE_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(child); dir != "" {
		from, _ := strconv.Atoi(os.Getenv("FROM"))
		count, _ := strconv.Atoi(os.Getenv("COUNT"))
		if err := write(dir, from, count); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// content is what a record holds: enough to fill pages of their own now and then.
func content(id string) []byte {
	n := 50
	if strings.HasSuffix(id, "7") {
		n = 9000
	}
	return []byte(strings.Repeat(id+" ", n/len(id)))
}

// write accepts records and ends every second one, with several writers.
func write(dir string, from, count int) error {
	s, err := Open(filepath.Join(dir, "store"), Options{})
	if err != nil {
		return err
	}
	ctx := context.Background()
	next := make(chan int)
	errs := make(chan error, 8)
	var wg sync.WaitGroup
	for range cap(errs) {
		wg.Go(func() {
			for i := range next {
				id := fmt.Sprint("r", i)
				_, err := s.Accept(ctx, &durable.Record{ID: id, Class: "c", Data: content(id)})
				if err == nil {
					fmt.Println("accepted", id)
					err = s.Append(ctx, id, 0, content(id), 1)
				}
				if err == nil {
					fmt.Println("text", id)
				}
				if err == nil && i%2 == 0 {
					if err = s.Finish(ctx, id, []byte("end of "+id)); err == nil {
						fmt.Println("ended", id)
					}
				}
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	for i := from; i < from+count; i++ {
		if i == from+count/2 {
			if err := s.Compact(ctx); err != nil {
				return err
			}
		}
		select {
		case next <- i:
		case err := <-errs:
			return err
		}
	}
	close(next)
	wg.Wait()
	return s.Close()
}

// promised is what was acknowledged.
type promised map[string]string // id -> accepted, text or ended

func (p promised) note(line string) {
	if what, id, ok := strings.Cut(line, " "); ok {
		p[id] = what
	}
}

// kept says what of it the store in a folder does not have.
func (p promised) kept(dir string) error {
	s, err := Open(filepath.Join(dir, "store"), Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	for id, what := range p {
		st, err := s.Get(context.Background(), id)
		switch {
		case err != nil:
			return fmt.Errorf("%s was %s: %w", id, what, err)
		case string(st.Data) != string(content(id)):
			return fmt.Errorf("%s was %s: the record is %q", id, what, st.Data)
		case what != "accepted" && string(st.Text) != string(content(id)):
			return fmt.Errorf("%s was %s: the text is %q", id, what, st.Text)
		case what == "ended" && string(st.Result) != "end of "+id:
			return fmt.Errorf("%s was %s: the end is %q", id, what, st.Result)
		}
	}
	return s.check()
}

// check says whether the parts of the file agree: what is open has not ended, and the
// other way round.
func (s *Store) check() error {
	open := map[string]bool{}
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		st, err := s.Claim(ctx)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err != nil {
			return err
		}
		if open[st.ID] || st.Result != nil {
			return fmt.Errorf("%s was handed out twice or after its end", st.ID)
		}
		open[st.ID] = true
	}
	return s.file.db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			return err
		}
		return tx.Bucket(recordsBucket).ForEach(func(k, _ []byte) error {
			if ended := tx.Bucket(endsBucket).Get(k) != nil; ended == open[string(k)] {
				return fmt.Errorf("%s: ended %t, to be claimed %t", k, ended, open[string(k)])
			}
			return nil
		})
	})
}

// command is the program that writes.
func command(dir string, from, count int) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), child+"="+dir, fmt.Sprint("FROM=", from), fmt.Sprint("COUNT=", count), "GOMAXPROCS=2")
	return cmd
}

// A process that is killed at any moment loses nothing that it acknowledged.
func TestKilledProcessLosesNothing(t *testing.T) {
	kills := 8
	if os.Getenv("INFERPLAN_LONG") != "" {
		kills = 100
	}
	dir, p := t.TempDir(), promised{}
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	for k := range kills {
		cmd := command(dir, k*100000, 100000)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		if !lines.Scan() {
			t.Fatal("the writer did not begin")
		}
		p.note(lines.Text())
		for left := r.IntN(300); lines.Scan(); left-- { // a slow machine is killed later
			p.note(lines.Text())
			if left == 0 {
				time.AfterFunc(time.Duration(r.IntN(2000))*time.Microsecond, func() { cmd.Process.Kill() })
			}
		}
		if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("the writer ended by itself: %v", err)
		}
		if k%10 == 9 || k == kills-1 {
			if err := p.kept(dir); err != nil {
				t.Fatalf("after %d kills (seed %d): %v", k+1, seed, err)
			}
		}
	}
	ended := 0
	for _, what := range p {
		if what == "ended" {
			ended++
		}
	}
	t.Logf("%d kills: %d accepted, %d of them ended, none lost (seed %d)", kills, len(p), ended, seed)
	if len(p) < 10*kills {
		t.Errorf("only %d were accepted: the test does not test", len(p))
	}
}
