package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"inferplan/engine"
)

// ControlFD is the descriptor at which a process finds its connection.
const ControlFD = 3

// stopTime is how long a process may take to free what it holds.
const stopTime = 10 * time.Second

// Config says which process to start.
type Config struct {
	Command []string // program and arguments; the program calls Main
	Env     []string // added to this process's environment
	Stderr  io.Writer
}

// Start starts a process and connects to the engine in it. The context bounds
// the start only; Close ends the process.
func Start(ctx context.Context, c Config) (*Engine, error) {
	if len(c.Command) == 0 {
		return nil, errors.New("remote: Config.Command is empty")
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("create an engine's socket: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "engine-control")
	defer theirs.Close()
	conn, err := fileConn(fds[0])
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(c.Command[0], c.Command[1:]...)
	cmd.ExtraFiles = []*os.File{theirs} // descriptor 3 = ControlFD
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Stderr = c.Stderr
	// Its own process group: an interrupt typed at the terminal is the parent's
	// to handle, which keeps what was measured.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("start the engine's process %s: %w", c.Command[0], err)
	}
	theirs.Close()
	stop := func() error { return wait(cmd) }
	e, err := Connect(ctx, conn)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("engine's process %d: %w", cmd.Process.Pid, err), stop())
	}
	e.stop, e.pid = stop, cmd.Process.Pid
	return e, nil
}

// wait waits for a process whose connection is closed, and kills it where it
// does not end by itself. How a process ended that was already known to be gone
// is part of the error.
func wait(cmd *exec.Cmd) error {
	kill := time.AfterFunc(stopTime, func() { cmd.Process.Kill() })
	defer kill.Stop()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("engine's process %d: %w", cmd.Process.Pid, err)
	}
	return nil
}

func fileConn(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "engine-control")
	defer f.Close() // FileConn works on a duplicate
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("engine's socket: %w", err)
	}
	return c, nil
}

// Main is the body of a process that Start started: it opens the engine and
// serves it at ControlFD until the parent closes the connection or ends.
func Main(open func() (engine.Engine, error)) (err error) {
	var st unix.Stat_t
	if err := unix.Fstat(ControlFD, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return fmt.Errorf("descriptor %d is not a socket: an engine's process is started by 'plan profile', not by hand", ControlFD)
	}
	unix.CloseOnExec(ControlFD)
	conn, err := fileConn(ControlFD)
	if err != nil {
		return err
	}
	defer conn.Close()
	eng, err := open()
	if err != nil {
		return errors.Join(err, refuse(conn, err))
	}
	defer func() { err = errors.Join(err, eng.Close()) }()
	return Serve(conn, eng)
}
