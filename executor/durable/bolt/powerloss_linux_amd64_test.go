package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// What a process does to its disk is recorded below it, at its system calls (ptrace).
// Power may fail after any of them. Then what was written since a file's last sync may
// be there or not, each block for itself.

// step is one thing that was done.
type step struct {
	kind string // write, size, sync, rename, syncdir, ack
	file int    // number of the file
	at   int64
	data []byte
	text string // path, or what was acknowledged
}

// recorder follows the system calls of a process.
type recorder struct {
	dir   string
	files map[int]int    // descriptor -> file, 0: the folder
	names map[string]int // path -> file
	made  int
	steps []step
}

// record runs the program that writes and says what it did.
func record(t *testing.T, dir string, count int) []step {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := command(dir, 0, count)
	out, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		if errors.Is(err, syscall.EPERM) {
			t.Skip("this machine does not let a process be traced")
		}
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	defer cmd.Process.Release()
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &ws, 0, nil); err != nil || !ws.Stopped() {
		t.Skipf("the traced process did not stop: %v", err)
	}
	const sysgood, exitkill = 1, 1 << 20
	if err := syscall.PtraceSetOptions(pid, sysgood|exitkill|syscall.PTRACE_O_TRACECLONE); err != nil {
		t.Skipf("this machine does not let a process be traced: %v", err)
	}
	r := &recorder{dir: dir, files: map[int]int{}, names: map[string]int{}}
	inside, known := map[int]bool{}, map[int]bool{pid: true}
	for tid, sig := pid, 0; ; {
		if err := syscall.PtraceSyscall(tid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
		if tid, err = syscall.Wait4(-1, &ws, syscall.WALL, nil); err != nil {
			t.Fatal(err)
		}
		for sig = 0; ws.Exited() || ws.Signaled(); {
			if tid == pid {
				if ws.ExitStatus() != 0 {
					t.Fatalf("the writer ended with %v", ws)
				}
				return r.steps
			}
			if tid, err = syscall.Wait4(-1, &ws, syscall.WALL, nil); err != nil {
				t.Fatal(err)
			}
		}
		switch stop := ws.StopSignal(); {
		case stop == syscall.SIGTRAP|0x80:
			if inside[tid] = !inside[tid]; !inside[tid] {
				var regs syscall.PtraceRegs
				if err := syscall.PtraceGetRegs(tid, &regs); err == nil {
					r.call(tid, &regs)
				}
			}
		case stop == syscall.SIGTRAP, stop == syscall.SIGSTOP && !known[tid]:
			known[tid] = true
		default:
			sig = int(stop)
		}
	}
}

// call notes a system call that has returned.
func (r *recorder) call(pid int, regs *syscall.PtraceRegs) {
	ret := int64(regs.Rax)
	if ret < 0 {
		return
	}
	fd := int(regs.Rdi)
	file, ours := r.files[fd]
	switch regs.Orig_rax {
	case unix.SYS_OPENAT:
		delete(r.files, int(ret))
		path := text(pid, uintptr(regs.Rsi))
		if path == r.dir {
			r.files[int(ret)] = 0
		} else if filepath.Dir(path) == r.dir {
			if r.names[path] == 0 {
				r.made++
				r.names[path] = r.made
				r.steps = append(r.steps, step{kind: "make", file: r.made, text: path})
			}
			r.files[int(ret)] = r.names[path]
		}
	case unix.SYS_CLOSE:
		delete(r.files, fd)
	case unix.SYS_PWRITE64:
		if ours {
			r.steps = append(r.steps, step{kind: "write", file: file, at: int64(regs.R10), data: memory(pid, uintptr(regs.Rsi), int(ret))})
		}
	case unix.SYS_FTRUNCATE:
		if ours {
			r.steps = append(r.steps, step{kind: "size", file: file, at: int64(regs.Rsi)})
		}
	case unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		if ours && file == 0 {
			r.steps = append(r.steps, step{kind: "syncdir"})
		} else if ours {
			r.steps = append(r.steps, step{kind: "sync", file: file})
		}
	case unix.SYS_RENAME, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2:
		from, to := uintptr(regs.Rdi), uintptr(regs.Rsi)
		if regs.Orig_rax != unix.SYS_RENAME {
			from, to = uintptr(regs.Rsi), uintptr(regs.R10)
		}
		old, next := text(pid, from), text(pid, to)
		r.names[next] = r.names[old]
		delete(r.names, old)
		r.steps = append(r.steps, step{kind: "rename", file: r.names[next], text: next})
	case unix.SYS_WRITE:
		if fd == 1 {
			r.steps = append(r.steps, step{kind: "ack", text: strings.TrimSpace(string(memory(pid, uintptr(regs.Rsi), int(ret))))})
		}
	}
}

func memory(pid int, at uintptr, n int) []byte {
	out := make([]byte, n)
	local := []unix.Iovec{{Base: &out[0], Len: uint64(n)}}
	if got, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: at, Len: n}}, 0); err != nil || got != n {
		panic(fmt.Sprintf("read %d bytes of the traced process: %d, %v", n, got, err))
	}
	return out
}

// text reads a string that ends with a zero byte, within its page.
func text(pid int, at uintptr) string {
	var out []byte
	for len(out) < 4096 {
		n := min(256, 4096-int(at)%4096)
		b := memory(pid, at, n)
		if i := bytes.IndexByte(b, 0); i >= 0 {
			return string(append(out, b[:i]...))
		}
		out, at = append(out, b...), at+uintptr(n)
	}
	return string(out)
}

// disk is what files hold. Loose is what was done since the last sync.
type disk struct {
	synced, now [][]byte
	loose       [][]step
	renames     []step         // since the last sync of the folder
	names       map[string]int // after it
}

func apply(b []byte, s step) []byte {
	switch {
	case s.kind == "size" && int64(len(b)) > s.at:
		return b[:s.at:s.at]
	case s.kind == "size":
		return append(b[:len(b):len(b)], make([]byte, s.at-int64(len(b)))...)
	}
	if grow := s.at + int64(len(s.data)) - int64(len(b)); grow > 0 {
		b = append(b, make([]byte, grow)...)
	}
	copy(b[s.at:], s.data)
	return b
}

func (d *disk) do(s step) {
	switch s.kind {
	case "make":
		d.synced, d.now, d.loose = append(d.synced, nil), append(d.now, nil), append(d.loose, nil)
	case "write", "size":
		d.now[s.file] = apply(d.now[s.file], s)
		d.loose[s.file] = append(d.loose[s.file], s)
	case "sync":
		d.synced[s.file], d.loose[s.file] = bytes.Clone(d.now[s.file]), nil
	case "rename":
		d.renames = append(d.renames, s)
	case "syncdir":
		for _, r := range d.renames {
			d.names[r.text] = r.file
		}
		d.renames = nil
	}
}

const sector = 512

// after makes the folder as it may be after a loss of power. In the first form all is
// there, in the second nothing that was not synced, in others some of it.
func (d *disk) after(t *testing.T, dir string, form int, r *rand.Rand) {
	t.Helper()
	names := map[string]int{}
	for path, f := range d.names {
		names[path] = f
	}
	for _, s := range d.renames {
		if form == 0 || form > 1 && r.IntN(2) == 0 {
			names[s.text] = s.file
		}
	}
	for path, f := range names {
		b := d.now[f]
		if form > 0 {
			b = bytes.Clone(d.synced[f])
			for _, s := range d.loose[f] {
				if form == 1 {
					continue
				}
				if s.kind == "size" {
					b = apply(b, s)
					continue
				}
				for at := 0; at < len(s.data); at += sector {
					if r.IntN(2) == 0 {
						b = apply(b, step{kind: "write", at: s.at + int64(at), data: s.data[at:min(at+sector, len(s.data))]})
					}
				}
			}
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(path)), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Whenever power fails, the store opens, and what was acknowledged is there.
func TestPowerLossKeepsAcknowledgedRecords(t *testing.T) {
	count, forms := 24, 3
	if os.Getenv("INFERPLAN_LONG") != "" {
		count, forms = 120, 8
	}
	dir := t.TempDir()
	steps := record(t, dir, count)
	kinds := map[string]int{}
	d := &disk{synced: [][]byte{nil}, now: [][]byte{nil}, loose: [][]step{nil}, names: map[string]int{}}
	p, r, opened := promised{}, rand.New(rand.NewPCG(1, 2)), 0
	for i, s := range steps {
		kinds[s.kind]++
		if s.kind == "ack" {
			p.note(s.text)
			continue
		}
		d.do(s)
		for form := range forms {
			to := t.TempDir()
			d.after(t, to, form, r)
			if _, err := os.Stat(filepath.Join(to, "store")); errors.Is(err, fs.ErrNotExist) && len(p) == 0 {
				continue // nothing was begun
			}
			if err := p.kept(to); err != nil {
				t.Fatalf("power fails after step %d of %d (%s), form %d: %v", i+1, len(steps), s.kind, form, err)
			}
			opened++
			os.RemoveAll(to)
		}
	}
	t.Logf("%d acknowledged, steps %v, %d disks opened", len(p), kinds, opened)
	if len(p) != count || kinds["write"] < count || kinds["sync"] < 10 || kinds["rename"] != 2 || kinds["syncdir"] < 2 || opened < 100 {
		t.Errorf("the record is not whole: %d acknowledged, %v, %d opened", len(p), kinds, opened)
	}
	// The test sees what it should: without syncs what was acknowledged is lost.
	d = &disk{synced: [][]byte{nil}, now: [][]byte{nil}, loose: [][]step{nil}, names: map[string]int{}}
	for i, s := range steps {
		if s.kind != "sync" || i < len(steps)/2 {
			d.do(s)
		}
	}
	to := t.TempDir()
	d.after(t, to, 1, r)
	if err := p.kept(to); err == nil {
		t.Error("a store that does not sync passes")
	}
}
