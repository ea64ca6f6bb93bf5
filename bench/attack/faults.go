package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"inferplan/bench/instrument"
	"inferplan/formats/seeded"
)

// both are the models of small plans.
var both = []string{"m", "words"}

// faults kills workers, fills the disk and takes the descriptors away.
func (a *attack) faults(r *instrument.Run) error {
	return errors.Join(a.kills(r), a.noDescriptors(r), a.fullDisk(r))
}

// kills ends workers with SIGKILL under load: every request ends in exactly one way,
// and the server counts as the client does.
func (a *attack) kills(r *instrument.Run) error {
	const workers = 4
	plan, _, err := a.smallPlan(r.Ctx, workers, 20*time.Millisecond, 800*time.Millisecond)
	if err != nil {
		return err
	}
	s, err := a.serve(r.Ctx, plan)
	if err != nil {
		return err
	}
	defer s.Kill()
	rng := seeded.New(a.seed, "kills")
	killed := 0
	endings := openLoop(r.Ctx, s.HTTP, both, 80, func() {
		for range a.count(100) {
			if pids := s.workers(); len(pids) > 0 && syscall.Kill(pids[rng.IntN(len(pids))], syscall.SIGKILL) == nil {
				killed++
			}
			time.Sleep(time.Duration(50+rng.IntN(300)) * time.Millisecond)
		}
		time.Sleep(time.Second)
	})
	answers := tally{}
	lost := answers.add(endings)
	if _, err := s.settled(r.Ctx); err != nil {
		return err
	}
	// Who dies again and again is started after pauses of up to five seconds.
	m, up, err := s.await(r.Ctx, "inferplan_worker_up", workers, 10*time.Second)
	if err != nil {
		return err
	}
	wrong := lost + apart(int(m.sum(requestsTotal)), len(endings))
	state(r, "workers killed (SIGKILL) under load: requests lost or counted otherwise by the server", "none", float64(wrong), fmt.Sprintf("of %d", len(endings)), wrong == 0 && up,
		"%d killed, %g of %d workers up in the end; answers: %v", killed, m.sum("inferplan_worker_up"), workers, answers)
	return nil
}

func apart(a, b int) int { return max(a-b, b-a) }

// noDescriptors lets connections take all descriptors of the server, and kills a worker
// while there are none.
func (a *attack) noDescriptors(r *instrument.Run) error {
	plan, _, err := a.smallPlan(r.Ctx, 2, 5*time.Millisecond, 800*time.Millisecond)
	if err != nil {
		return err
	}
	s, err := a.serve(r.Ctx, plan)
	if err != nil {
		return err
	}
	defer s.Kill()
	limit := unix.Rlimit{Cur: uint64(s.descriptors() + 30), Max: uint64(s.descriptors() + 30)}
	if err := unix.Prlimit(s.pid(), unix.RLIMIT_NOFILE, &limit, nil); err != nil {
		return fmt.Errorf("limiting descriptors: %w", err)
	}
	var held []net.Conn
	for i := range 200 {
		c, err := net.DialTimeout("tcp", []string{s.HTTP, s.GRPC, s.Metrics}[i%3], time.Second)
		if err != nil {
			break
		}
		held = append(held, c)
	}
	time.Sleep(500 * time.Millisecond)
	if pids := s.workers(); len(pids) > 0 {
		_ = syscall.Kill(pids[0], syscall.SIGKILL) // it may have ended
	}
	time.Sleep(500 * time.Millisecond)
	for _, c := range held {
		c.Close()
	}
	began := time.Now()
	_, up, _ := s.await(r.Ctx, "inferplan_worker_up", 2, 20*time.Second) // what cannot be read is not up
	took := time.Since(began)
	endings := openLoop(r.Ctx, s.HTTP, both, 40, func() { time.Sleep(time.Second) })
	answers := tally{}
	lost := answers.add(endings)
	if err := s.end(); err != nil {
		return fmt.Errorf("without descriptors: %w", err)
	}
	state(r, "no descriptors left and a worker killed: until all serves again once connections close", "it comes back", took.Seconds(), "s", answers["200"] == len(endings) && up && lost == 0,
		"%d descriptors; then %v", limit.Cur, answers)
	return nil
}

// mountSmall mounts a file system of a size on a new folder. It returns false, with a note, where none can be mounted.
func (a *attack) mountSmall(r *instrument.Run, name, size string) (dir string, ok bool, err error) {
	dir = filepath.Join(a.Folder, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", false, err
	}
	if err := unix.Mount("none", dir, "tmpfs", 0, "size="+size); err != nil {
		fmt.Fprintf(r.Log, "%s disk: left out, a file system of %s cannot be mounted: %v\n", name, size, err)
		return "", false, nil
	}
	return dir, true, nil
}

// writing are verbs that write OUT, and the files that they write. Before they run, those with a report have one there.
var writing = []struct {
	file string
	args []string
}{
	{"plan.json", []string{"solve", "-o", "OUT"}}, {"report.json", []string{"simulate", "plan.json", "--duration", "1s", "-o", "OUT"}},
	{"profile.json", []string{"import", "records", "records.csv", "-o", "OUT"}}, {"trace.csv", []string{"import", "trace", "trace.csv", "-o", "OUT"}},
	{"mlp-256.onnx", []string{"models", "write", "mlp-256", "--dir", "FULL"}}, {"events.log", []string{"simulate", "plan.json", "--duration", "20s", "--event-log", "OUT"}},
}

// fullDisk writes with every verb to a file system that has no room: exit code 5, the
// file that was there stays, and nothing else is left.
func (a *attack) fullDisk(r *instrument.Run) error {
	plan, _, err := a.smallPlan(r.Ctx, 2, 5*time.Millisecond, 800*time.Millisecond)
	if err != nil {
		return err
	}
	full, ok, err := a.mountSmall(r, "full", "64k")
	if !ok {
		return err
	}
	defer func() { _ = unix.Unmount(full, 0) }()
	dir := filepath.Dir(plan)
	for name, text := range map[string]string{
		"records.csv": "sample_id,model,correct,certainty\n0,m,1,0.9\n0,words,1,0.8\n1,m,0,0.3\n1,words,1,0.7\n", "trace.csv": "t_us\n" + strings.Repeat("1\n", 100_000),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	if e := a.call(r.Ctx, dir, "simulate", "plan.json", "--duration", "1s", "-o", "report.json"); e.code != 0 {
		return errors.New(e.said)
	}
	var wrong []string
	for _, v := range writing {
		out, before := filepath.Join(full, v.file), []byte(nil)
		if strings.HasSuffix(v.file, ".json") { // of the kind that the verb writes
			if before, err = os.ReadFile(filepath.Join(dir, v.file)); err == nil {
				err = os.WriteFile(out, before, 0o600)
			}
			if err != nil {
				return err
			}
		}
		if err := fill(full); err != nil {
			return err
		}
		args := slices.Clone(v.args)
		for i := range args {
			args[i] = strings.NewReplacer("OUT", out, "FULL", full).Replace(args[i])
		}
		e := a.call(r.Ctx, dir, args...)
		after, _ := os.ReadFile(out) // there may be none
		os.Remove(filepath.Join(full, "ballast"))
		if e.code != 5 || before != nil && string(after) != string(before) {
			wrong = append(wrong, fmt.Sprintf("%s: code %d, the old file stays: %v: %.200s", v.args[0], e.code, string(after) == string(before), e.said))
		}
		os.Remove(out)
		if left, _ := os.ReadDir(full); len(left) > 0 {
			wrong = append(wrong, fmt.Sprintf("%s: leaves %v", v.args[0], left))
		}
	}
	none(r, "verbs that do not end with 5, lose the old file or leave another where the disk is full", len(wrong), len(writing), "%s", strings.Join(wrong, "; "))
	return nil
}

// fill takes what room there is left in a folder's file system.
func fill(dir string) error {
	f, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		if _, err := f.Write(make([]byte, 1024)); errors.Is(err, syscall.ENOSPC) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
