// Package export writes folders of files with which other engines and clusters run a plan.
//
// A Target describes one engine: its name, its flags, and the function that adds files to a Folder. The targets are
// listed in export/targets, one line each; each is a package below this one. The command plan export knows none of
// them by name.
//
// A Folder is written as a whole: Save writes a README.md that says what to run and what the plan assumed, and
// export.json, a list of the files with their digests. A later export replaces the folder, unless a file in it was
// edited since.
package export
