package gpucheck

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"inferplan/engine/ort"
	"inferplan/engine/worker"
)

// peerStep is the other process of the step tiers.
const peerStep = "peer"

// tierBytes is the size of a transfer: that of a large cut at batch 8.
const tierBytes = 32 << 20

// tiers measures every way by which a tensor can go from one stage to the next.
func tiers(ctx context.Context, c *check, r *StepResult) error {
	t := Table{Title: fmt.Sprintf("one crossing of %d MiB", tierBytes>>20), Header: []string{"tier", "us", "1e9 bytes a second"}}
	row := func(name string, d time.Duration) {
		t.Rows = append(t.Rows, []string{name, fmt.Sprintf("%.1f", float64(d)/1e3), fmt.Sprintf("%.1f", tierBytes/d.Seconds()/1e9)})
	}
	t.Rows = append(t.Rows, []string{"by pointer, inside a process", "0", "-"})
	shared, err := sharedMemory()
	if err != nil {
		return err
	}
	row("shared memory, written and read by a core", shared)
	r.Tables = append(r.Tables, t)
	if c.rehearsal() {
		return nil
	}
	defer func() { r.Tables[len(r.Tables)-1] = t }()
	i, err := c.dev.Index()
	if err != nil {
		return err
	}
	x, err := ort.MeasureCopies(i, tierBytes, 20)
	if err != nil {
		return err
	}
	each := func(rate float64) time.Duration { return time.Duration(tierBytes / rate * float64(time.Second)) }
	row("through pinned shared memory: to the host, to the device", each(x.ToHost)+each(x.ToDevice))
	row("through ordinary shared memory: to the host, to the device", each(x.FromPaged)+each(x.ToDevicePaged))
	d, err := c.fromPeer(ctx, i)
	if err != nil {
		r.verdict("memory of another process can be mapped", "CUDA IPC", 0, false)
		r.note("CUDA IPC: %v", err)
		return nil
	}
	row("CUDA IPC: copied inside the device out of another process's memory", d)
	r.verdict("memory of another process can be mapped", "CUDA IPC", 1, true)
	return nil
}

// sharedMemory times one core writing a tensor into memory that two processes
// share, and reading it.
func sharedMemory() (time.Duration, error) {
	s, err := worker.NewSegment(1, tierBytes)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	own := make([]byte, tierBytes)
	best := time.Duration(0)
	for i := range 6 {
		begin := time.Now()
		copy(s.Data, own)
		copy(own, s.Data)
		if d := time.Since(begin); i > 0 && (best == 0 || d < best) {
			best = d
		}
	}
	return best, nil
}

// fromPeer starts the other process, maps its memory, checks what stands there
// and times copies out of it.
func (c *check) fromPeer(ctx context.Context, index int) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, c.Self, "gpu-check", "--one", peerStep, "--device", c.Device, "--out", c.Out, "--work", c.Work)
	cmd.Stderr = c.log()
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer cmd.Wait()
	defer in.Close()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("the other process: %w", err)
	}
	raw, err := hex.DecodeString(strings.TrimSpace(line))
	var h ort.Handle
	if err != nil || copy(h[:], raw) != len(h) {
		return 0, errors.Join(errors.New("the other process gave no handle"), err)
	}
	theirs, err := ort.Import(index, h, tierBytes)
	if err != nil {
		return 0, err
	}
	defer theirs.Close()
	mine, err := ort.Allocate(index, tierBytes)
	if err != nil {
		return 0, err
	}
	defer mine.Close()
	d, err := mine.CopyTime(theirs, 20)
	if err != nil {
		return 0, err
	}
	got := make([]byte, tierBytes)
	if err := mine.Read(got); err != nil {
		return 0, err
	}
	if !bytes.Equal(got, pattern()) {
		return 0, errors.New("what was copied out of the other process's memory is not what it wrote")
	}
	return d, nil
}

func pattern() []byte {
	b := make([]byte, tierBytes)
	for i := range b {
		b[i] = byte(i*31 + i>>13)
	}
	return b
}

// peer is the other process: it shares a piece of memory until its input ends.
func peer(index int) error {
	m, err := ort.Allocate(index, tierBytes)
	if err != nil {
		return err
	}
	defer m.Close()
	if err := m.Write(pattern()); err != nil {
		return err
	}
	h, err := m.Export()
	if err != nil {
		return err
	}
	fmt.Println(hex.EncodeToString(h[:]))
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
