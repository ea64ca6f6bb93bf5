package main

import (
	"bytes"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Only what says FAIL is red, and only on a terminal whose user wants colours.
func TestFailuresAreRedOnTerminals(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	if got := paintFailure(&bytes.Buffer{}, "FAIL x"); got != "FAIL x" {
		t.Errorf("not on a terminal: %q", got)
	}
	terminal := openTerminal(t)
	for _, c := range []struct{ noColour, text, want string }{
		{"", "FAIL x", "\x1b[31mFAIL x\x1b[0m"},
		{"", "ok", "ok"},
		{"1", "FAIL x", "FAIL x"},
	} {
		t.Setenv("NO_COLOR", c.noColour)
		if got := paintFailure(terminal, c.text); got != c.want {
			t.Errorf("NO_COLOR=%q, %q: found %q, expected %q", c.noColour, c.text, got, c.want)
		}
	}
}

// openTerminal returns the end of a pseudo terminal of 80 columns that a program would have.
func openTerminal(t *testing.T) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no pseudo terminal: ", err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Skip("no pseudo terminal: ", err)
	}
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, uintptr(unix.O_RDWR|unix.O_NOCTTY))
	if errno != 0 {
		t.Skip("no pseudo terminal: ", errno)
	}
	terminal := os.NewFile(peer, "terminal")
	t.Cleanup(func() { terminal.Close() })
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatal(err)
	}
	return terminal
}
