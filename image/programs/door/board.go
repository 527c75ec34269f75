package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// The page changes at most so often.
	lookEvery = time.Second
	// While somebody looks, a place is asked so often (RAYSIDE_ASK_EVERY says otherwise), and so many of them at once.
	usualAskEvery, askAtOnce = 3 * time.Second, 32
	// After so long without a question nobody looks any more.
	unwatched = 40 * time.Second
	// A page is answered after so long, though nothing has changed.
	pollPatience = 20 * time.Second
	// A place answers within so long, and with so many bytes.
	placePatience   = 5 * time.Second
	largestProgress = 16 << 10
	// In letters: what an attendee's editor tells.
	longestTold = 200
	// An attendee who does nothing for so long is idle; one whose check fails so often is stuck.
	idleAfter, stuckAfter = 5 * time.Minute, 3
)

// What is known of a place, the most urgent first.
const (
	asksForHelp = "help"
	isStuck     = "stuck"
	isLost      = "lost"
	isStopped   = "stopped"
	isWorking   = "working"
	isIdle      = "idle"
	isAway      = "away"
	isFree      = "free"
)

//go:embed board.html
var boardPage []byte

// Is what an attendee's editor writes into a file of the workspace: vscode/src/workshop.js.
type progress struct {
	Lab *struct {
		Title        string `json:"title"`
		Step         int    `json:"step"`
		Steps        int    `json:"steps"`
		Passed       bool   `json:"passed"`
		ChecksFailed int    `json:"checks_failed"`
	} `json:"lab"`
	LabsPassed int `json:"labs_passed"`
	// The tasks that stand still, in words.
	Stopped string `json:"stopped"`
	// Seconds since the attendee did something.
	Idle float64 `json:"idle"`
	Help *struct {
		Text string `json:"text"`
		// Whether the teacher may look into the place.
		MayLook bool `json:"may_look"`
	} `json:"help"`
}

// A place as the teacher's page has it.
type row struct {
	Name     string `json:"name"`
	Attendee string `json:"attendee"`
	Since    string `json:"since"`
	State    string `json:"state"`
	// What there is to say of the state, for people.
	Detail     string `json:"detail"`
	Lab        string `json:"lab"`
	LabsPassed int    `json:"labs_passed"`
	// Leads into the place, where its attendee lets the teacher look.
	Look string `json:"look,omitempty"`
}

type shown struct {
	Title  string `json:"title"`
	Places []row  `json:"places"`
	// By it a page says what it has already.
	Version string `json:"version"`
	content []byte
	changed chan struct{}
}

// What is known of a place that somebody has.
type watched struct {
	// Since when they have it: what the attendee before them told is not theirs.
	since time.Time
	told  *progress
	// Whether the workspace answered when it was asked last, whether it is being asked, and when it is next.
	answers, asking bool
	next            time.Time
}

// The teacher's page: what each attendee is at, live. It is served at a port of its own, so that no page of a place
// is of its origin; and its reader is known by a key, which their link has where browsers send it nowhere.
type board struct {
	room *room
	ways *ways
	// The file of a workspace in which its editor tells how far the attendee is.
	file     string
	askEvery time.Duration
	wake     chan struct{}
	// When somebody asked last, in seconds since 1970.
	asked   atomic.Int64
	current atomic.Pointer[shown]
	slots   chan struct{}
	mutex   sync.Mutex
	// By the places' names.
	known map[string]*watched
}

func newBoard(places *room, ways *ways, file string, askEvery time.Duration) *board {
	made := &board{room: places, ways: ways, file: file, askEvery: askEvery, wake: make(chan struct{}, 1), slots: make(chan struct{}, askAtOnce)}
	made.sleep()
	return made
}

func (b *board) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	protect(header, boardPolicy)
	expected := b.room.now().TeacherKey
	isTeacher := expected != "" && isSame(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), expected)
	if !isTeacher || r.ContentLength != 0 {
		// Of strangers no connection is kept. Go reads a body, which comes in time or not at all.
		header.Set("Connection", "close")
		http.NewResponseController(w).SetReadDeadline(time.Now().Add(formPatience))
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "This is only read.", http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path == "/" {
		header.Set("Content-Type", "text/html; charset=utf-8")
		w.Write(boardPage)
		return
	}
	if r.URL.Path != "/places" && r.URL.Path != "/places.csv" {
		http.NotFound(w, r)
		return
	}
	if !isTeacher {
		http.Error(w, "This is the teacher's. Open the link that ./invokew workshop --status prints.", http.StatusUnauthorized)
		return
	}
	seen := b.wait(r.Context(), r.URL.Query().Get("after"))
	if r.URL.Path == "/places.csv" {
		header.Set("Content-Type", "text/csv; charset=utf-8")
		writeTable(w, seen.Places)
		return
	}
	header.Set("Content-Type", "application/json")
	w.Write(seen.content)
}

// Returns what is shown once it is not of that version, or a while later.
func (b *board) wait(ctx context.Context, version string) *shown {
	b.asked.Store(time.Now().Unix())
	select {
	case b.wake <- struct{}{}:
	default:
	}
	patience := time.NewTimer(pollPatience)
	defer patience.Stop()
	for {
		seen := b.current.Load()
		if seen.Version != "" && seen.Version != version {
			return seen
		}
		select {
		case <-seen.changed:
		case <-patience.C:
			return b.current.Load()
		case <-ctx.Done():
			return seen
		}
	}
}

// Looks at the places again and again while somebody reads.
func (b *board) keepFresh(ctx context.Context) {
	for {
		if time.Since(time.Unix(b.asked.Load(), 0)) > unwatched {
			// What is known now is old when somebody looks again.
			b.sleep()
			select {
			case <-ctx.Done():
				return
			case <-b.wake:
			}
		}
		b.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookEvery):
		}
	}
}

// Forgets all that was told.
func (b *board) sleep() {
	b.mutex.Lock()
	b.known = map[string]*watched{}
	b.mutex.Unlock()
	earlier := b.current.Swap(&shown{content: []byte(`{"title":"","places":[],"version":""}`), changed: make(chan struct{})})
	if earlier != nil {
		close(earlier.changed)
	}
}

// Shows what is known, and asks the places that were not asked for a while. It waits for none of them.
func (b *board) look(ctx context.Context) {
	now := b.room.now()
	rows := make([]row, len(now.Places))
	b.mutex.Lock()
	defer b.mutex.Unlock()
	type due struct {
		chosen *way
		it     *watched
	}
	var dues []due
	for at, each := range now.Places {
		its, isTaken := now.claims[each.Name]
		rows[at] = row{Name: each.Name, Attendee: each.Attendee, State: isFree}
		if !isTaken {
			delete(b.known, each.Name)
			continue
		}
		it := b.known[each.Name]
		if it == nil || !it.since.Equal(its.Since) {
			it = &watched{since: its.Since, answers: true}
			b.known[each.Name] = it
		}
		chosen := b.ways.to(each)
		if !it.asking && time.Now().After(it.next) {
			dues = append(dues, due{chosen, it})
		}
		rows[at].Attendee, rows[at].Since = cleaned(its.Attendee), its.Since.UTC().Format(time.RFC3339)
		rows[at].fill(it.told, it.answers, chosen.open.Load() > 0)
		if it.told != nil && it.told.Help != nil && it.told.Help.MayLook {
			rows[at].Look = now.URL + own + "place/" + url.PathEscape(each.Password)
		}
	}
	// Who was not asked for longest is first: of many that are silent none is in the way of others for good.
	slices.SortStableFunc(dues, func(one, other due) int { return one.it.next.Compare(other.it.next) })
	for _, each := range dues {
		b.begin(ctx, each.chosen, each.it)
	}
	b.show(now.Title, rows)
}

// Asks a place, unless so many others are being asked.
func (b *board) begin(ctx context.Context, chosen *way, it *watched) {
	select {
	case b.slots <- struct{}{}:
	default:
		return
	}
	it.asking = true
	go func() {
		defer func() { <-b.slots }()
		told, err := b.ask(ctx, chosen)
		b.mutex.Lock()
		defer b.mutex.Unlock()
		it.asking, it.answers, it.next = false, err == nil, time.Now().Add(b.askEvery)
		if err == nil {
			it.told = told
		}
	}()
}

func (b *board) show(title string, rows []row) {
	made := &shown{Title: title, Places: rows, changed: make(chan struct{})}
	content, err := json.Marshal(made)
	if err != nil {
		return
	}
	sum := sha256.Sum256(content)
	made.Version = hex.EncodeToString(sum[:8])
	earlier := b.current.Load()
	if earlier.Version == made.Version {
		return
	}
	made.content, _ = json.Marshal(made)
	b.current.Store(made)
	close(earlier.changed)
}

// Says what the attendee of a place is at. `answers`: the workspace does; `isHere`: a browser of theirs is connected.
func (r *row) fill(told *progress, answers, isHere bool) {
	r.State = isWorking
	if told == nil {
		told = &progress{}
	}
	r.LabsPassed = min(max(told.LabsPassed, 0), 1000)
	lab := told.Lab
	if lab != nil {
		r.Lab = shortened(lab.Title)
		if lab.Passed {
			r.Lab += ", passed"
		} else if lab.Steps > 0 && lab.Step > 0 {
			r.Lab += fmt.Sprintf(", step %d of %d", min(lab.Step, 99), min(lab.Steps, 99))
		}
	}
	switch {
	case told.Help != nil:
		r.State, r.Detail = asksForHelp, cmp.Or(shortened(told.Help.Text), "asks for help")
	case !answers:
		r.State, r.Detail = isLost, "the workspace does not answer"
	case !isHere:
		r.State, r.Detail = isAway, "no browser is connected"
	case lab != nil && !lab.Passed && lab.ChecksFailed >= stuckAfter:
		r.State, r.Detail = isStuck, fmt.Sprintf("the check failed %d times", min(lab.ChecksFailed, 999))
	case told.Stopped != "":
		r.State, r.Detail = isStopped, "stopped in "+shortened(told.Stopped)
	case told.Idle >= idleAfter.Seconds():
		r.State, r.Detail = isIdle, "nothing was done for a while"
	}
}

// Returns what the editor of a place has written; nil where it has written nothing yet.
func (b *board) ask(ctx context.Context, chosen *way) (*progress, error) {
	ctx, cancel := context.WithTimeout(ctx, placePatience)
	defer cancel()
	answer, err := chosen.file(ctx, b.file)
	if err != nil || answer == nil {
		return nil, err
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(io.LimitReader(answer.Body, largestProgress))
	if err != nil {
		return nil, err
	}
	told := &progress{}
	if err := json.Unmarshal(content, told); err != nil {
		// It is the attendee's to spoil.
		return nil, nil
	}
	return told, nil
}

// Returns what an attendee's editor tells, as it can be shown.
func shortened(text string) string { return cleanedTo(text, longestTold) }

func writeTable(w io.Writer, places []row) {
	table := csv.NewWriter(w)
	table.Write([]string{"place", "attendee", "since", "state", "detail", "lab", "labs passed"})
	for _, each := range places {
		line := []string{each.Name, each.Attendee, each.Since, each.State, each.Detail, each.Lab, fmt.Sprint(each.LabsPassed)}
		for at, cell := range line {
			// A spreadsheet takes what begins so for a formula.
			if cell != "" && strings.Contains("=+-@", cell[:1]) {
				cell = "'" + cell
			}
			// Some spreadsheets separate cells by it.
			line[at] = strings.ReplaceAll(cell, ";", ",")
		}
		table.Write(line)
	}
	table.Flush()
}

// The page's own script and style run, and nothing else.
var boardPolicy = fmt.Sprintf(
	"default-src 'none'; script-src %s; style-src %s; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
	digestOf("script"), digestOf("style"),
)

// Returns how a policy names what is in the page between these tags.
func digestOf(tag string) string {
	_, rest, _ := strings.Cut(string(boardPage), "<"+tag+">")
	inner, _, _ := strings.Cut(rest, "</"+tag+">")
	sum := sha256.Sum256([]byte(inner))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
