package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"inferplan/bench/figures"
	"inferplan/bench/instrument"
	"inferplan/formats/seeded"
)

// hung is when a run of the program counts as one that never ends: other work on the
// machine counts here, and not in the CPU time that a verb may take.
const hung = 2 * time.Minute

// What verbs may take of CPU time: those that solve, and all others.
const (
	mostSolving = 20 * time.Second
	mostOther   = 5 * time.Second
)

// allowed is the CPU time that a use of the program may take. A check solves, too, unless
// told not to.
func allowed(use []string) time.Duration {
	if len(use) > 0 && (use[0] == "solve" || use[0] == "check" && !slices.Contains(use, "--no-solve")) {
		return mostSolving
	}
	return mostOther
}

// exit says how a run of the program ended.
type exit struct {
	code      int // negative: by a signal
	cpu, wall time.Duration
	memory    int64  // MiB
	said, out string // stderr and stdout
}

// fault says what is wrong with an ending of hostile input. If nothing is wrong, it is empty. Go ends
// a program that panics with the code of bad input, so what it said counts, too.
func (e *exit) fault(allowed time.Duration) string {
	switch {
	case e.wall >= hung:
		return "does not end"
	case e.code < 0:
		return "killed"
	case strings.Contains(e.said, "panic:") || strings.Contains(e.said, "fatal error:") || strings.Contains(e.said, "goroutine "):
		return "panics"
	case e.code == 5:
		return "exit code 5"
	case e.cpu > allowed && e.code == 0:
		return tookLong // it did what the file asks for, such as measuring a large model
	case e.cpu > allowed:
		return fmt.Sprintf("over %v", allowed)
	case e.memory > serverMemory:
		return "over 1 GiB"
	}
	return ""
}

const tookLong = "over its CPU time, for good input with exit code 0"

// call runs the program once.
func (a *attack) call(ctx context.Context, dir string, args ...string) *exit {
	ctx, cancel := context.WithTimeout(ctx, hung)
	defer cancel()
	cmd := exec.CommandContext(ctx, a.Path, args...)
	cmd.Dir = dir
	var said, out bytes.Buffer
	cmd.Stderr, cmd.Stdout = &said, &out
	began := time.Now()
	if args[0] == "serve" {
		cmd.Stderr = &stopping{&said, cmd}
	}
	err := cmd.Start()
	if err == nil {
		limit(cmd.Process.Pid)
		err = cmd.Wait()
	}
	e := &exit{code: -1, wall: time.Since(began), said: said.String(), out: out.String()}
	if cmd.ProcessState == nil {
		e.said = fmt.Sprint(err)
		return e
	}
	e.code, e.cpu = cmd.ProcessState.ExitCode(), cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()
	if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		e.memory = u.Maxrss >> 10
	}
	return e
}

// limit keeps a process that takes far too much from harming this machine: twice the
// CPU time of verbs that solve, and memory that nothing comes near to.
func limit(pid int) {
	const seconds, bytes = 2 * uint64(mostSolving/time.Second), 8 << 30
	_ = unix.Prlimit(pid, unix.RLIMIT_CPU, &unix.Rlimit{Cur: seconds, Max: seconds}, nil)
	_ = unix.Prlimit(pid, unix.RLIMIT_AS, &unix.Rlimit{Cur: bytes, Max: bytes}, nil)
}

// stopping ends a server as soon as it says that it serves.
type stopping struct {
	said   *bytes.Buffer
	serves *exec.Cmd
}

func (s *stopping) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("serving ")) {
		_ = s.serves.Process.Signal(syscall.SIGTERM)
	}
	return s.said.Write(p)
}

// seed is a good file and what the program does with such files; FILE stands for it.
type seed struct {
	name string // ending included
	text []byte
	uses [][]string
}

// corpus holds the results of runs of the program over mutants.
type corpus struct {
	mu     sync.Mutex
	tries  int
	codes  map[int]int
	faults tally
	failed int
	log    io.Writer
	cpu    time.Duration
	share  float64 // the largest part that a run took of its CPU time
	memory int64   // MiB
	cpuOf  string
}

// mutants makes n mutants and gives each of them to one use of its seed, two at once. One that
// takes more CPU time than its verb may is run again with nothing beside it, and that run counts.
func (a *attack) mutants(r *instrument.Run, stream string, n int, seeds []seed, mutate func(m *mutator, b []byte) []byte) (*corpus, error) {
	ctx, c := r.Ctx, &corpus{codes: map[int]int{}, faults: tally{}, log: r.Log}
	m := &mutator{Rand: seeded.New(a.seed, stream)}
	type try struct {
		text []byte
		name string
		use  []string
	}
	tries := make(chan try)
	var wg sync.WaitGroup
	var alone sync.RWMutex // runs hold it for reading; one that must have the machine for itself, for writing
	run := func(dir string, use, args []string) *exit {
		alone.RLock()
		e := a.call(ctx, dir, args...)
		alone.RUnlock()
		if e.cpu <= allowed(use) || e.wall >= hung || ctx.Err() != nil {
			return e
		}
		// A mutant beside it slows its memory accesses, which counts as its CPU time.
		os.RemoveAll(filepath.Join(dir, "out.json"))
		alone.Lock()
		defer alone.Unlock()
		return a.call(ctx, dir, args...)
	}
	for range 2 {
		dir, err := os.MkdirTemp(a.Folder, stream)
		if err != nil {
			return nil, err
		}
		wg.Go(func() {
			for t := range tries {
				path := filepath.Join(dir, t.name)
				if err := os.WriteFile(path, t.text, 0o600); err != nil {
					c.note(&exit{code: -1, said: err.Error()}, t.use, nil)
					continue
				}
				args := make([]string, len(t.use))
				for i, word := range t.use {
					args[i] = strings.ReplaceAll(strings.ReplaceAll(word, "FILE", path), "DIR", dir)
				}
				if e := run(dir, t.use, args); ctx.Err() == nil {
					c.note(e, t.use, t.text)
				}
				os.RemoveAll(filepath.Join(dir, "out.json"))
			}
		})
	}
	for range n {
		if ctx.Err() != nil {
			break
		}
		s := &seeds[m.IntN(len(seeds))]
		tries <- try{mutate(m, s.text), s.name, s.uses[m.IntN(len(s.uses))]}
	}
	close(tries)
	wg.Wait()
	return c, ctx.Err()
}

// broken mutates to at most so many bytes, with words of the format.
func broken(most int, words ...string) func(m *mutator, b []byte) []byte {
	return func(m *mutator, b []byte) []byte {
		m.words = words
		return m.mutate(b, most)
	}
}

// note counts an ending; inputs that failed are kept.
func (c *corpus) note(e *exit, use []string, text []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tries++
	c.codes[e.code]++
	if e.cpu > c.cpu {
		c.cpu, c.cpuOf = e.cpu, strings.Join(use, " ")
	}
	c.share = max(c.share, float64(e.cpu)/float64(allowed(use)))
	c.memory = max(c.memory, e.memory)
	f := e.fault(allowed(use))
	if f == "" {
		return
	}
	if c.faults[f]++; c.failed < 100 {
		folder := filepath.Join(os.TempDir(), "attack-failed")
		_ = os.MkdirAll(folder, 0o700) // what is kept is for people
		at := filepath.Join(folder, fmt.Sprintf("%d-%s", c.tries, use[0]))
		_ = os.WriteFile(at, text, 0o600)
		c.failed++
		fmt.Fprintf(c.log, "    FAILED %s: plan %s (%d, CPU %v, %v, %d MiB; kept as %s): %.400s\n", f, strings.Join(use, " "), e.code, e.cpu.Round(time.Millisecond), e.wall.Round(time.Millisecond), e.memory, at, e.said)
	}
}

// state states the figures of a corpus.
func (c *corpus) state(r *instrument.Run, claim string) {
	wrong := 0
	for _, n := range c.faults {
		wrong += n
	}
	fmt.Fprintf(r.Log, "%s: exit codes %v, the dearest plan %s\n", claim, c.codes, c.cpuOf)
	stated := []*figures.Figure{
		none(r, claim+": panics, exit codes 5, over 5 s of CPU (20 s where it solves) or 1 GiB", wrong, c.tries, "%v", c.faults),
		atMost(r, claim+": CPU of the longest run, of what its verb may take", 1, c.share, "", "%.3f s at most; most memory %d MiB", c.cpu.Seconds(), c.memory),
	}
	if wrong > 0 && wrong == c.faults[tookLong] {
		for _, f := range stated {
			f.Holds = figures.Partly
		}
	}
}
