package export

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/usage"
)

// Folder holds the files of an export until they are saved, and what its README says.
type Folder struct {
	// Steps are the sections of the README that say what to run, in order.
	Steps []Step
	// Assumed are lines about what the export assumes beyond the plan's own assumptions.
	Assumed []string
	// Lost are lines about what of the plan the target cannot carry, such as its policy.
	Lost []string

	files []file
}

// Step is a section of a README.
type Step struct {
	Title    string
	Text     string // Markdown; may be empty
	Commands string // shell commands, one a line; may be empty
}

// file is a file of a folder. write writes its content.
type file struct {
	path  string
	mode  fs.FileMode
	write func(w io.Writer) error
}

// Names of the files that Save adds.
const (
	readmeName  = "README.md"
	catalogName = "export.json"
)

// AddText adds a file with this content. path is relative to the folder, with slashes.
func (f *Folder) AddText(path, content string) {
	f.add(path, 0o644, func(w io.Writer) error {
		_, err := io.WriteString(w, content)
		return err
	})
}

// AddScript adds an executable file.
func (f *Folder) AddScript(path, content string) {
	f.AddText(path, content)
	f.files[len(f.files)-1].mode = 0o755
}

// AddFile adds a file whose content is written when the folder is saved, such as a large model.
func (f *Folder) AddFile(path string, write func(w io.Writer) error) { f.add(path, 0o644, write) }

// AddCopy adds a copy of the file at source, or of standard input (-).
func (f *Folder) AddCopy(path, source string) {
	f.AddFile(path, func(w io.Writer) error {
		in, err := document.Open(source)
		if err != nil {
			return err
		}
		defer in.Close()
		_, err = io.Copy(w, in)
		return err
	})
}

func (f *Folder) add(path string, mode fs.FileMode, write func(w io.Writer) error) {
	f.files = append(f.files, file{path, mode, write})
}

// Paths returns the paths of the files that were added, sorted.
func (f *Folder) Paths() []string {
	paths := document.Map(f.files, func(f *file) string { return f.path })
	slices.Sort(paths)
	return paths
}

// catalog is the content of export.json.
type catalog struct {
	Format string            `json:"format"` // inferplan.export/v1
	Target string            `json:"target"`
	Files  map[string]string `json:"files"` // path -> SHA-256 of what was written
}

const catalogFormat = "inferplan.export/v1"

// Save writes the folder to dir, which it makes, completely or not at all, and returns the paths of all files. If dir
// holds an earlier export, it is replaced. If it holds anything else, or a file that was edited since the earlier
// export, Save returns a usage.Error and changes nothing, unless force is true.
func (f *Folder) Save(target *Target, source *Source, dir string, force bool) ([]string, error) {
	if !force {
		if err := checkReplaceable(dir); err != nil {
			return nil, err
		}
	}
	f.AddText(readmeName, f.readme(target, source))
	slices.SortStableFunc(f.files, func(a, b file) int { return cmp.Compare(a.path, b.path) })

	// Write into a new folder beside dir, which then takes its place.
	temporary, err := os.MkdirTemp(filepath.Dir(filepath.Clean(dir)), ".export.*.tmp")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temporary)
	digests := map[string]string{}
	for i := range f.files {
		if digests[f.files[i].path], err = f.files[i].save(temporary); err != nil {
			return nil, fmt.Errorf("writing %s: %w", f.files[i].path, err)
		}
	}
	list, err := json.MarshalIndent(catalog{catalogFormat, target.Name, digests}, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(temporary, catalogName), append(list, '\n'), 0o644); err != nil {
		return nil, err
	}
	if err := os.Chmod(temporary, 0o755); err != nil {
		return nil, err
	}
	if err := replaceFolder(dir, temporary); err != nil {
		return nil, err
	}
	return append(f.Paths(), catalogName), nil
}

// save writes the file below dir and returns the SHA-256 of its content.
func (f *file) save(dir string) (string, error) {
	if !filepath.IsLocal(filepath.FromSlash(f.path)) {
		return "", errors.New("the path leaves the folder")
	}
	name := filepath.Join(dir, filepath.FromSlash(f.path))
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return "", err
	}
	out, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.mode)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	err = f.write(io.MultiWriter(out, sum))
	return hex.EncodeToString(sum.Sum(nil)), errors.Join(err, out.Close())
}

// replaceFolder renames the folder temporary to dir. A folder at dir is removed after it was renamed away.
func replaceFolder(dir, temporary string) error {
	old := temporary + ".old"
	err := os.Rename(dir, old)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	hadFolder := err == nil
	if err := os.Rename(temporary, dir); err != nil {
		if hadFolder {
			err = errors.Join(err, os.Rename(old, dir))
		}
		return err
	}
	return os.RemoveAll(old)
}

// checkReplaceable returns a usage.Error if the folder dir holds something that an export would destroy: files that no
// earlier export wrote, or files that were edited since.
func checkReplaceable(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0:
		return nil
	case err != nil:
		return &usage.Error{Err: err}
	}
	const hint = "\n  hint: name another folder, or use --force to replace all of it"
	var earlier catalog
	data, err := os.ReadFile(filepath.Join(dir, catalogName))
	if err != nil || json.Unmarshal(data, &earlier) != nil || earlier.Format != catalogFormat {
		return &usage.Error{Err: fmt.Errorf("%s: found a folder with other files, expected none or an earlier export%s", dir, hint)}
	}
	return filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(dir, name)
		if err != nil || relative == catalogName {
			return err
		}
		digest, err := document.Digest(name)
		if err != nil {
			return err
		}
		if earlier.Files[filepath.ToSlash(relative)] != digest {
			return &usage.Error{Err: fmt.Errorf("%s was added or edited after it was exported%s", name, hint)}
		}
		return nil
	})
}

// readme returns the text of README.md: what to run, what the files are, what the plan promises and assumes, and what
// the target cannot carry.
func (f *Folder) readme(target *Target, source *Source) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s: %s\n\nWritten by `plan export %s` from the plan `%s` (kind %s, %s %s).\n", target.Name, target.Summary, target.Name,
		path.Base(filepath.ToSlash(source.Path)), source.Plan.Kind, source.Plan.Objective.Name, formatNumber(source.Plan.Objective.Value))
	for _, s := range f.Steps {
		fmt.Fprintf(&b, "\n## %s\n", s.Title)
		if s.Text != "" {
			fmt.Fprintf(&b, "\n%s\n", s.Text)
		}
		if s.Commands != "" {
			fmt.Fprintf(&b, "\n```sh\n%s\n```\n", strings.TrimRight(s.Commands, "\n"))
		}
	}
	b.WriteString("\n## What the plan promises\n\n| model | SLO | kept by | rate planned |\n|---|---|---|---|\n")
	for _, m := range source.Plan.ServedModels() {
		fmt.Fprintf(&b, "| %s | %s | %s | %s/s |\n", servedName(&m), m.SLOUS.D(), m.Percentile, formatNumber(m.RPS))
	}
	writeList(&b, "What the plan assumed", slices.Concat(source.Plan.Assumptions, f.Assumed))
	writeList(&b, "What this export does not carry", f.Lost)
	writeList(&b, "Warnings of the plan", source.Plan.Warnings)
	return b.String()
}

// formatNumber writes a number with five digits, for people.
func formatNumber(v float64) string { return strconv.FormatFloat(v, 'g', 5, 64) }

// servedName returns the name of a served model, with its SLO class if it has one.
func servedName(m *formats.Served) string {
	if m.Class == "" {
		return m.Model
	}
	return m.Model + ", class " + m.Class
}

// writeList writes a section with a list, unless the list is empty.
func writeList(b *strings.Builder, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n", title)
	for _, line := range lines {
		fmt.Fprintf(b, "- %s\n", line)
	}
}
