package profiler

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"github.com/gofrs/flock"

	"inferplan/formats"
	"inferplan/formats/document"
)

// Several processes may measure into one file. Each holds a lock while it writes. It keeps what others wrote since
// it last looked, except for the measurements that it made itself.

// lockWait is the time that a writer waits for another one. Writing takes a second at most. Without the limit, a
// process that was stopped while it writes would block the others for ever.
const lockWait = time.Minute

// lockFile locks a profile for writing until unlock is called. Each write replaces the file, so the lock is on its
// folder, which leaves no lock file behind. File systems that cannot lock a folder get a hidden file.
func lockFile(path string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	folder, base := filepath.Split(path)
	for _, l := range []*flock.Flock{
		flock.New(filepath.Clean(folder), flock.SetFlag(os.O_RDONLY)),
		flock.New(filepath.Join(folder, "."+base+".lock"), flock.SetFlag(os.O_CREATE|os.O_RDWR)),
	} {
		var ok bool
		if ok, err = l.TryLockContext(ctx, 10*time.Millisecond); ok {
			return func() { _ = l.Unlock() }, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("lock profile %s: another process has held it for %v", path, lockWait)
		}
	}
	return nil, fmt.Errorf("lock profile %s: %w", path, err)
}

// Update changes a profile's file while no other process does. It reads the file, or takes emptyProfile if there is
// no file, applies change, and writes the result. It returns the profile that it wrote. A file that exists is
// overwritten.
func Update(path string, emptyProfile *formats.Profile, change func(*formats.Profile) error) (*formats.Profile, error) {
	unlock, err := lockFile(path)
	if err != nil {
		return nil, err
	}
	defer unlock()
	p, err := formats.ReadProfile(path)
	if errors.Is(err, fs.ErrNotExist) && emptyProfile != nil {
		p, err = emptyProfile, nil
	}
	if err != nil {
		return nil, fmt.Errorf("profile to extend: %w", err)
	}
	if err := change(p); err != nil {
		return nil, err
	}
	if _, err := document.WriteFile(path, p, document.Force(true)); err != nil {
		return nil, fmt.Errorf("write profile: %w", err)
	}
	return p, nil
}

// save writes the profile, if it has a file, merged with what other processes wrote there.
func (r *runner) save() error {
	if r.options.OutPath == "" {
		return nil
	}
	unlock, err := lockFile(r.options.OutPath)
	if err != nil {
		return err
	}
	defer unlock()
	// If the file is no longer the one of this run's last write, another process wrote it: merge first.
	if current, err := os.Stat(r.options.OutPath); err == nil && !sameWrite(current, r.lastWrite) {
		theirs, err := formats.ReadProfile(r.options.OutPath)
		if err != nil {
			return fmt.Errorf("profile that another process wrote: %w", err)
		}
		r.mergeFile(theirs)
	}
	if _, err := document.WriteFile(r.options.OutPath, r.profile, document.Force(true)); err != nil {
		return fmt.Errorf("write profile: %w", err)
	}
	r.lastWrite, _ = os.Stat(r.options.OutPath)
	return nil
}

// sameWrite reports whether a file was not written since it was last looked at. Every write makes a new file.
func sameWrite(current, earlier fs.FileInfo) bool {
	return earlier != nil && os.SameFile(current, earlier) && current.ModTime().Equal(earlier.ModTime()) && current.Size() == earlier.Size()
}

// mergeFile is called when another process has written the profile's file since this run last read it. theirs are
// the file's contents. It adds the measurements of this run to them, and makes that the profile of this run.
func (r *runner) mergeFile(theirs *formats.Profile) {
	// Add what this run recorded. Measurements that the other process took since are kept.
	for _, j := range r.jobs {
		if !j.isRecorded {
			continue
		}
		index := slices.IndexFunc(theirs.Models, func(m formats.ProfileModel) bool { return m.Model == j.entry.Model })
		if index >= 0 {
			known := &theirs.Models[index]
			if sameSource(known, j.entry) && len(known.Blocks) == len(j.entry.Blocks) && formats.SameCuts(known.Blocks, j.entry.Blocks) {
				for _, m := range known.Measurements {
					isOld := slices.ContainsFunc(j.oldMeasurements, func(b formats.Measurement) bool { return reflect.DeepEqual(b, m) })
					if !isOld && j.entry.FindMeasurement(m.Device, m.Share, m.Batch) == nil {
						putMeasurement(j.entry, m)
					}
				}
			} else if !j.isReplacing(known) {
				r.progress.warn(j.info.name, fmt.Sprintf("%s: another process measured it with other blocks or from another file at the same time: its numbers are replaced", j.info.name))
			}
		}
		c := *j.entry
		c.Measurements = slices.Clone(j.entry.Measurements)
		if index >= 0 {
			theirs.Models[index] = c
		} else {
			theirs.Models = append(theirs.Models, c)
		}
	}

	// Add the device kind, if this run has recorded measurements on it and so charged its time, and the notes.
	if i := slices.IndexFunc(r.profile.Devices, func(d formats.ProfileDevice) bool { return d.Device == r.dev.Kind }); i >= 0 && r.chargedTime > 0 {
		putDevice(theirs, r.profile.Devices[i])
	}
	for _, n := range r.notes {
		putNote(theirs, n.subject, n.text)
	}
	*r.profile = *theirs
}

// isReplacing reports whether a model of the file is the one that this run found there and has warned to replace.
func (j *modelJob) isReplacing(found *formats.ProfileModel) bool {
	return !j.hasProfileCut && reflect.DeepEqual(found.Measurements, j.oldMeasurements)
}

// setNote sets the note about a subject in the profile, or removes it if the text is empty. It also keeps it, so
// that mergeFile can set it again.
func (r *runner) setNote(subject, text string) {
	putNote(r.profile, subject, text)
	i := slices.IndexFunc(r.notes, func(n subjectNote) bool { return n.subject == subject })
	if i < 0 {
		r.notes = append(r.notes, subjectNote{subject, text})
	} else {
		r.notes[i].text = text
	}
}

// subjectNote is a note for the profile about a subject.
type subjectNote struct{ subject, text string }
