//! Checks every generated MP4 and every one of the corpus: how it is packaged, or why not; and that
//! its segments contain exactly its samples.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use support::{Media, behind_the_end, chunks, corpus, index, made, source, summary};
use testkit::Avc;
use vod::Error;

/// The expected result for the files of a folder.
struct Expected {
    /// Files that are packaged, with their tracks.
    packaged: &'static [(&'static str, &'static str)],
    /// Tracks of these files that are left out: track, codec, reason.
    left_out: &'static [(&'static str, u32, &'static str, &'static str)],
    /// Files of which nothing can be packaged, with the reason in the manifest's answer.
    refused: &'static [(&'static str, &'static str)],
    /// Tracks of which the title has not every sample: it leaves out samples that the edit list
    /// hides and no decoder needs. The number is how many are missing at the front.
    trimmed: &'static [(&'static str, &'static str, usize)],
}

/// For the generated clips. Profiles and levels are those of their recipes: Main (4d40) and High
/// (6400) of H.264 at level 3.1 (1f), and Main of HEVC at level 3.1 (L93).
const MADE: Expected = Expected {
    packaged: &[
        ("mp4/av1-aac.mp4", "v0 av01.0.00M.08, a0 mp4a.40.2"),
        ("mp4/av1.mp4", "v0 av01.0.00M.10"),
        ("mp4/film.mp4", "v0 avc1.4d401f, a0 mp4a.40.2"),
        ("mp4/fragmented-aac.mp4", "a0 mp4a.40.2"),
        ("mp4/fragmented-hevc.mp4", "v0 hvc1.1.6.L93.90, a0 mp4a.40.2"),
        ("mp4/fragmented-late.mp4", "v0 avc1.64001f, a0 mp4a.40.2"),
        ("mp4/fragmented-opus.mp4", "a0 opus"),
        ("mp4/fragmented.mp4", "v0 avc1.64001f, a0 mp4a.40.2"),
        ("mp4/hevc-10s.mp4", "v0 hvc1.1.6.L93.90"),
        ("mp4/hevc-aac.mp4", "v0 hvc1.1.6.L93.90, a0 mp4a.40.2"),
        ("mp4/hevc.mp4", "v0 hvc1.1.6.L93.90"),
        ("mp4/intra.mp4", "v0 avc1.4d401f"),
        ("mp4/late-index.mp4", "v0 avc1.64001f, a0 mp4a.40.2"),
        ("mp4/late-pictures.mp4", "v0 avc1.64001f, a0 mp4a.40.2"),
        ("mp4/late-sound.mp4", "v0 avc1.4d401f, a0 mp4a.40.2"),
        ("mp4/late.mp4", "v0 avc1.64001f"),
        ("mp4/minute.mp4", "v0 avc1.4d401f, a0 mp4a.40.2"),
        ("mp4/mp3.mp4", "v0 avc1.64001f"),
        ("mp4/opus-trimmed.mp4", "a0 opus"),
        ("mp4/opus.mp4", "a0 opus"),
        ("mp4/pcm.mov", "v0 avc1.64001f"),
        ("mp4/pictures-10s.mp4", "v0 avc1.64001f"),
        ("mp4/pictures-ntsc.mp4", "v0 avc1.64001f"),
        ("mp4/pictures.mp4", "v0 avc1.64001f"),
        ("mp4/quicktime.mov", "v0 avc1.64001f, a0 mp4a.40.2"),
        ("mp4/rungs.mp4", "v0 avc1.4d401f, a0 mp4a.40.2"),
        ("mp4/short.mp4", "v0 avc1.64001f, a0 mp4a.40.2"),
        ("mp4/shorter-sound.mp4", "v0 avc1.4d401f, a0 mp4a.40.2"),
        ("mp4/sound.mp4", "a0 mp4a.40.2"),
        ("mp4/surround-60.mp4", "v0 avc1.64001f, a0 mp4a.40.2"),
        ("mp4/surround.mp4", "v0 avc1.64001f, a0 mp4a.40.2"),
        ("mp4/ten-bits.mp4", "v0 avc1.6e001f"),
        ("mp4/timecode.mov", "v0 avc1.64001f"),
        ("mp4/tracks.mp4", "v0 avc1.64001f, v1 avc1.64001f, a0 mp4a.40.2, a1 mp4a.40.2, t0, t1"),
        ("mp4/trimmed.mp4", "v0 avc1.64001f, a0 mp4a.40.2"),
        ("mp4/two-minutes.mp4", "v0 avc1.4d401f, a0 mp4a.40.2"),
        ("mp4/two-sounds.mp4", "a0 mp4a.40.2, a1 mp4a.40.2"),
        ("mp4/vfr.mp4", "v0 avc1.4d401f"),
    ],
    left_out: &[
        ("mp4/mp3.mp4", 2, "mp4a", "codec 'mp4a' of track 2 at byte 0 is not supported"),
        ("mp4/pcm.mov", 2, "twos", "codec 'twos' of track 2 at byte 0 is not supported"),
        (
            "mp4/rungs.mp4",
            2,
            "avc1.4d401f",
            "track 2 (avc1.4d401f), which the file has disabled, at byte 0 is not supported",
        ),
        (
            "mp4/rungs.mp4",
            3,
            "avc1.4d401f",
            "track 3 (avc1.4d401f), which the file has disabled, at byte 0 is not supported",
        ),
        ("mp4/timecode.mov", 2, "tmcd", "codec 'tmcd' of track 2 at byte 0 is not supported"),
    ],
    refused: &[
        ("mp4/ac3.mp4", "codec 'ac-3' of track 1 at byte 0 is not supported"),
        ("mp4/alac.mp4", "codec 'alac' of track 1 at byte 0 is not supported"),
        ("mp4/eac3.mp4", "codec 'ec-3' of track 1 at byte 0 is not supported"),
        ("mp4/encrypted.mp4", "encryption of track 1 (encv) at byte 0 is not supported"),
        ("mp4/vp9.mp4", "codec 'vp09' of track 1 at byte 0 is not supported"),
    ],
    // Everything except what the decoder needs to start: 80 ms of Opus, a keyframe, 64 ms of AAC.
    trimmed: &[
        ("mp4/opus-trimmed.mp4", "a0", 32),
        ("mp4/tracks.mp4", "a0", 1),
        ("mp4/trimmed.mp4", "v0", 25),
        ("mp4/trimmed.mp4", "a0", 44),
    ],
};

/// For the corpus.
const CORPUS: Expected =
    Expected { packaged: &PACKAGED, left_out: &LEFT_OUT, refused: &REFUSED, trimmed: &TRIMMED };

const PACKAGED: [(&str, &str); 98] = [
    ("bbb/androidx_bbb_1ch_16kHz_aac.mp4", "a0 mp4a.40.2"),
    ("bbb/androidx_bbb_800x640_768kbps_30fps_avc_2b_firstpts_10_sec.mp4", "v0 avc1.64001f"),
    ("bbb/androidx_bbb_800x640_768kbps_30fps_avc_non_reference_3b.mp4", "v0 avc1.64001f"),
    ("bbb/androidx_bbb_800x640_768kbps_30fps_avc_pyramid_3b.mp4", "v0 avc1.64001f"),
    ("bbb/bbb_10s_1080p_h264_aac.mp4", "v0 avc1.4d0428, a0 mp4a.40.2"),
    ("bbb/bbb_2min_240p_h264_aac.mp4", "v0 avc1.4d0420, a0 mp4a.40.2"),
    ("bbb/bbb_2s_1080p60_51ch.mp4", "v0 avc1.64002a, a0 mp4a.40.2"),
    ("bbb/bbb_30s_480p_51ch_moovend.mp4", "v0 avc1.64001e, a0 mp4a.40.2"),
    ("bbb/bbb_60s_720p_h264_aac.mp4", "v0 avc1.4d0420, a0 mp4a.40.2"),
    ("corrupt/mp4parse_capi_afconvert-aac-0.5s.mp4", "a0 mp4a.40.2"),
    ("corrupt/mp4parse_capi_opus_audioinit.mp4", "a0 opus"),
    ("corrupt/mp4parse_capi_video_colr_nclx_hdr10_full_range.mp4", "v0 avc1.64000a"),
    ("corrupt/mp4parse_capi_video_colr_nclx_hlg_full_range.mp4", "v0 avc1.64000a"),
    ("corrupt/mp4parse_capi_video_rotation_90.mp4", "v0 avc1.64000a"),
    ("corrupt/mp4parse_hevc_white_frame.mp4", "v0 hvc1.1.6.L90.90"),
    ("corrupt/mp4parse_metadata.mp4", "v0 avc1.64000d, a0 mp4a.40.2"),
    ("corrupt/mp4parse_minimal.mp4", "v0 avc1.64000d, a0 mp4a.40.2"),
    ("corrupt/mp4parse_video_colr_nclx_and_icc.mp4", "v0 avc1.64000a"),
    ("film/sintel_trailer_52s_720p_h264_aac.mp4", "v0 avc1.64001f, a0 mp4a.40.2"),
    ("mp4/androidx_bt601.mov", "v0 avc1.4d001e, a0 mp4a.40.2"),
    ("mp4/androidx_bt601.mp4", "v0 avc1.42c00d, a0 mp4a.40.2"),
    ("mp4/androidx_edit_list_positive_shift.mp4", "v0 avc1.42c028, a0 mp4a.40.2"),
    ("mp4/androidx_fragmented_captions.mp4", "v0 avc1.4d400d"),
    ("mp4/androidx_h265_bframes.mp4", "v0 hvc1.1.6.L90.90"),
    ("mp4/androidx_h265_with_metadata_track.mp4", "v0 hvc1.1.6.L153.B0, a0 mp4a.40.2"),
    ("mp4/androidx_hlg10-color-test.mp4", "v0 hvc1.2.4.L153, a0 mp4a.40.2"),
    ("mp4/androidx_iibbibb_editlist_videoonly.mp4", "v0 avc1.f40016"),
    ("mp4/androidx_postroll-5s.mp4", "v0 avc1.4d401e, a0 mp4a.40.2"),
    ("mp4/androidx_preroll-5s.mp4", "v0 avc1.4d401e, a0 mp4a.40.2"),
    ("mp4/androidx_sample_12_5fps_720p_1s.mp4", "v0 avc1.64003c, a0 mp4a.40.2"),
    ("mp4/androidx_sample_15fps_720p_1s.mp4", "v0 avc1.64003c, a0 mp4a.40.2"),
    ("mp4/androidx_sample_2_byte_NAL_length.mp4", "v0 avc1.64001f, a0 mp4a.40.2"),
    ("mp4/androidx_sample_audio_only.mp4", "a0 mp4a.40.2"),
    ("mp4/androidx_sample_audio_only_15s.mp4", "a0 mp4a.40.2"),
    ("mp4/androidx_sample_empty_track.mp4", "v0 avc1.640034, a0 mp4a.40.2"),
    ("mp4/androidx_sample_fpcm_32le.mp4", "v0 avc1.64001f"),
    ("mp4/androidx_sample_fragmented.mp4", "v0 avc1.64001f, a0 mp4a.40.2"),
    ("mp4/androidx_sample_fragmented_large_bitrates.mp4", "v0 avc1.64001f, a0 mp4a.40.2"),
    ("mp4/androidx_sample_fragmented_seekable_multiple_sidx.mp4", "v0 avc1.640028"),
    ("mp4/androidx_sample_fragmented_unsupported_brands.mp4", "v0 avc1.64001f, a0 mp4a.40.2"),
    ("mp4/androidx_sample_fragmented_uuid.mp4", "v0 avc1.64001f, a0 mp4a.40.2"),
    ("mp4/androidx_sample_gamma2.2.mp4", "v0 avc1.42c015, a0 mp4a.40.2"),
    ("mp4/androidx_sample_ipcm_16be.mp4", "v0 avc1.64001f"),
    ("mp4/androidx_sample_malformed_free_box.mp4", "v0 avc1.64001f, a0 mp4a.40.2"),
    ("mp4/androidx_sample_mdat_too_long.mp4", "v0 avc1.64001f, a0 mp4a.40.2"),
    ("mp4/androidx_sample_opus.mp4", "a0 opus"),
    ("mp4/androidx_sample_opus_fragmented.mp4", "a0 opus"),
    ("mp4/androidx_sample_portrait.mp4", "v0 avc1.64001f, a0 mp4a.40.2"),
    ("mp4/androidx_sample_rotate_and_reflect.mp4", "v0 avc1.64001f, a0 mp4a.40.2"),
    ("mp4/androidx_sample_sef_super_slow_motion.mp4", "v0 avc1.64000b"),
    ("mp4/androidx_sample_shorter_audio.mp4", "v0 avc1.42c015, a0 mp4a.40.2"),
    ("mp4/androidx_sample_srgb.mp4", "v0 avc1.64001f, a0 mp4a.40.2"),
    ("mp4/androidx_sample_twos_pcm.mp4", "v0 avc1.64001f"),
    ("mp4/androidx_sample_unsupported_brands.mp4", "v0 avc1.64001f, a0 mp4a.40.2"),
    ("mp4/androidx_sample_video_only.mp4", "v0 avc1.64001f"),
    ("mp4/androidx_sample_with_av1c.mp4", "v0 av01.0.05M.10.0.110.09.18.09.0"),
    ("mp4/androidx_sample_with_btrt.mp4", "v0 avc1.64001f, a0 mp4a.40.2"),
    ("mp4/androidx_sample_with_color_info.mp4", "v0 hvc1.2.4.L120.B0, a0 mp4a.40.2"),
    (
        "mp4/androidx_sample_with_colr_mdcv_and_clli.mp4",
        "v0 av01.0.09M.10.0.110.09.16.09.0, a0 mp4a.40.2",
    ),
    (
        "mp4/androidx_sample_with_fake_auxiliary_tracks_interleaved_with_primary_video_tracks.mp4",
        "v0 avc1.f4000a",
    ),
    ("mp4/androidx_sample_with_increasing_timestamps.mp4", "v0 avc1.42c033, a0 mp4a.40.2"),
    (
        "mp4/androidx_sample_with_increasing_timestamps_320w_240h_fragmented.mp4",
        "v0 avc1.640015, a0 mp4a.40.2",
    ),
    ("mp4/androidx_sample_with_invalid_nalu.mp4", "v0 avc1.64001f"),
    ("mp4/androidx_sample_with_metadata.mp4", "v0 avc1.64001f, a0 mp4a.40.2"),
    ("mp4/androidx_sample_with_nero_chapters_only.mp4", "v0 avc1.640034, a0 mp4a.40.2"),
    ("mp4/androidx_sample_with_vobsub.mp4", "v0 avc1.640034"),
    ("mp4/androidx_sample_without_stss.mp4", "v0 avc1.64101f"),
    ("mp4/androidx_silent-black-25s.mp4", "v0 avc1.64000d, a0 mp4a.40.2"),
    ("mp4/androidx_trim_optimization_failure.mp4", "v0 avc1.64001e, a0 mp4a.40.2"),
    ("mp4/androidx_water_180_mvhevc_5frames.mov", "v0 hvc1.1.6.L156.B0"),
    ("mp4/gomp4_sample_fragmented.mp4", "v0 avc1.4d401f, a0 mp4a.40.2"),
    ("mp4/mediabunny_cursed-vfr.mp4", "v0 avc1.640032"),
    ("mp4/mediabunny_multiple-aac-tracks.mp4", "a0 mp4a.40.2, a1 mp4a.40.2"),
    ("mp4/mediabunny_sar_2x1.mp4", "v0 avc1.64001e"),
    ("mp4/membrane_ref_aac.mp4", "a0 mp4a.40.2"),
    ("mp4/membrane_ref_aac_fast_start.mp4", "a0 mp4a.40.2"),
    ("mp4/membrane_ref_aac_fast_start_sr_44100.mp4", "a0 mp4a.40.2"),
    ("mp4/membrane_ref_opus.mp4", "a0 opus"),
    ("mp4/membrane_ref_two_tracks_fast_start.mp4", "v0 avc1.64000a, a0 mp4a.40.2"),
    ("mp4/membrane_ref_video.mp4", "v0 avc1.64000a"),
    ("mp4/membrane_ref_video_hevc.mp4", "v0 hvc1.1.6.L30.90"),
    ("mp4/membrane_ref_video_variable_parameters.mp4", "v0 avc1.64001f"),
    ("mp4/membrane_ref_video_with_tmcd.mp4", "v0 avc1.64000a"),
    ("mp4/moviepy_video_with_failing_audio.mp4", "v0 avc1.64001e"),
    ("mp4/mp4ff_bbb5s_aac_sidx.mp4", "a0 mp4a.40.2"),
    ("mp4/mp4ff_cbcsdec.mp4", "v0 avc1.64001f"),
    ("mp4/mp4ff_ed_hevc.mp4", "v0 hvc1.1.6.L120.90, a0 mp4a.40.2"),
    ("mp4/mp4ff_opus.mp4", "a0 opus"),
    ("mp4/mp4ff_prog_8s.mp4", "v0 avc1.64001e, a0 mp4a.40.2"),
    ("mp4/rsmpeg_mov_sample_30s_720p.mov", "v0 avc1.64001f, a0 mp4a.40.2"),
    ("mp4/scuffle_avc_aac.mp4", "v0 avc1.64001f, a0 mp4a.40.2"),
    ("mp4/scuffle_avc_aac_fragmented.mp4", "v0 avc1.640033, a0 mp4a.40.2"),
    ("mp4/scuffle_avc_aac_large.mp4", "v0 avc1.640034, a0 mp4a.40.2"),
    ("mp4/scuffle_hevc_aac_fragmented.mp4", "v0 hvc1.1.6.L153.90, a0 mp4a.40.2"),
    ("mp4/torchcodec_h264_10bits.mp4", "v0 avc1.6e000c"),
    (
        "mp4/torchcodec_nasa_13013.mp4",
        "v0 avc1.640015, v1 avc1.64000c, a0 mp4a.40.2, a1 mp4a.40.2, t0, t1",
    ),
    ("mp4/torchcodec_testsrc2_av1_10bit.mp4", "v0 av01.0.00M.10"),
    ("mp4/torchcodec_testsrc2_h265.mp4", "v0 hvc1.1.6.L93.90"),
];

const LEFT_OUT: [(&str, u32, &str, &str); 13] = [
    (
        "mp4/androidx_h265_with_metadata_track.mp4",
        1,
        "mett",
        "codec 'mett' of track 1 at byte 0 is not supported",
    ),
    (
        "mp4/androidx_sample_empty_track.mp4",
        2,
        "avc1.640034",
        "track 2 (avc1.640034) has no samples at byte 0",
    ),
    (
        "mp4/androidx_sample_fpcm_32le.mp4",
        2,
        "fpcm",
        "codec 'fpcm' of track 2 at byte 0 is not supported",
    ),
    (
        "mp4/androidx_sample_ipcm_16be.mp4",
        2,
        "ipcm",
        "codec 'ipcm' of track 2 at byte 0 is not supported",
    ),
    (
        "mp4/androidx_sample_twos_pcm.mp4",
        2,
        "twos",
        "codec 'twos' of track 2 at byte 0 is not supported",
    ),
    (
        "mp4/androidx_sample_with_color_info.mp4",
        3,
        "mebx",
        "codec 'mebx' of track 3 at byte 0 is not supported",
    ),
    (
        "mp4/androidx_sample_with_color_info.mp4",
        4,
        "mebx",
        "codec 'mebx' of track 4 at byte 0 is not supported",
    ),
    (
        "mp4/androidx_sample_with_color_info.mp4",
        5,
        "mebx",
        "codec 'mebx' of track 5 at byte 0 is not supported",
    ),
    (
        "mp4/androidx_sample_with_vobsub.mp4",
        2,
        "ac-3",
        "codec 'ac-3' of track 2 at byte 0 is not supported",
    ),
    (
        "mp4/androidx_sample_with_vobsub.mp4",
        3,
        "mp4s",
        "codec 'mp4s' of track 3 at byte 0 is not supported",
    ),
    (
        "mp4/membrane_ref_video_with_tmcd.mp4",
        2,
        "tmcd",
        "codec 'tmcd' of track 2 at byte 0 is not supported",
    ),
    (
        "mp4/moviepy_video_with_failing_audio.mp4",
        2,
        "mp4a",
        "codec 'mp4a' of track 2 at byte 0 is not supported",
    ),
    ("mp4/mp4ff_cbcsdec.mp4", 2, "c608", "codec 'c608' of track 2 at byte 0 is not supported"),
];

const REFUSED: [(&str, &str); 40] = [
    (
        "bbb/androidx_bbb_800x640_768kbps_30fps_vp9.mp4",
        "codec 'vp09' of track 1 at byte 0 is not supported",
    ),
    (
        "corrupt/mp4parse_bipbop-cenc-audioinit.mp4",
        "encryption of track 2 (enca) at byte 0 is not supported",
    ),
    (
        "corrupt/mp4parse_bipbop_cbcs_audio_init.mp4",
        "encryption of track 1 (enca) at byte 0 is not supported",
    ),
    ("corrupt/mp4parse_capi_bipbop_audioinit.mp4", "track 1 (mp4a.40.2) has no samples at byte 0"),
    (
        "corrupt/mp4parse_capi_chunk_out_of_range.mp4",
        "stsz: 17 samples, chunks for 0 of them at byte 8529",
    ),
    (
        "corrupt/mp4parse_capi_short-cenc.mp4",
        "encryption of track 1 (encv) at byte 0 is not supported",
    ),
    (
        "corrupt/mp4parse_capi_zero_empty_stsc.mp4",
        "media of track 1 at byte 0 is cut off: 8822197 bytes announced, 48618 present",
    ),
    (
        "corrupt/mp4parse_test_case_1185230.mp4",
        "media of track 1 at byte 0 is cut off: 9837 bytes announced, 3250 present",
    ),
    ("mp4/androidx_sample_ac3.mp4", "codec 'ac-3' of track 1 at byte 0 is not supported"),
    (
        "mp4/androidx_sample_ac3_fragmented.mp4",
        "codec 'ac-3' of track 1 at byte 0 is not supported",
    ),
    ("mp4/androidx_sample_ac4.mp4", "codec 'ac-4' of track 1 at byte 0 is not supported"),
    ("mp4/androidx_sample_ac4_level4.mp4", "codec 'ac-4' of track 1 at byte 0 is not supported"),
    (
        "mp4/androidx_sample_ac4_level4_fragmented.mp4",
        "codec 'ac-4' of track 1 at byte 0 is not supported",
    ),
    ("mp4/androidx_sample_alac.mp4", "codec 'alac' of track 1 at byte 0 is not supported"),
    ("mp4/androidx_sample_alac_20bit.mp4", "codec 'alac' of track 1 at byte 0 is not supported"),
    ("mp4/androidx_sample_dthd.mp4", "codec 'mlpa' of track 1 at byte 0 is not supported"),
    ("mp4/androidx_sample_eac3.mp4", "codec 'ec-3' of track 1 at byte 0 is not supported"),
    ("mp4/androidx_sample_eac3joc.mp4", "codec 'ec-3' of track 1 at byte 0 is not supported"),
    (
        "mp4/androidx_sample_eac3joc_fragmented.mp4",
        "codec 'ec-3' of track 1 at byte 0 is not supported",
    ),
    (
        "mp4/androidx_sample_fixed_rechunk_no_elst.mp4",
        "codec 'ipcm' of track 1 at byte 0 is not supported",
    ),
    ("mp4/androidx_sample_fpcm_64be.mp4", "codec 'fpcm' of track 1 at byte 0 is not supported"),
    (
        "mp4/androidx_sample_fragmented_sgpd_v2.mp4",
        "encryption of track 1 (encv) at byte 0 is not supported",
    ),
    ("mp4/androidx_sample_mp2_audio.mp4", "codec 'mp4a' of track 1 at byte 0 is not supported"),
    ("mp4/androidx_sample_mpegh_mha1.mp4", "codec 'mha1' of track 1 at byte 0 is not supported"),
    (
        "mp4/androidx_sowt_pcm_variable_sample_size.mp4",
        "codec 'sowt' of track 1 at byte 0 is not supported",
    ),
    ("mp4/mediabunny_ac3.mp4", "codec 'ac-3' of track 1 at byte 0 is not supported"),
    ("mp4/mediabunny_eac3.mp4", "codec 'ec-3' of track 1 at byte 0 is not supported"),
    ("mp4/mp4ff_2xSencNoMdat.mp4", "moov: missing, a media segment without its header at byte 0"),
    ("mp4/mp4ff_av1_init.mp4", "track 1 (av01.0.00M.08) has no samples at byte 0"),
    ("mp4/mp4ff_av1_multitile_init.mp4", "track 1 (av01.0.05M.08) has no samples at byte 0"),
    ("mp4/mp4ff_cbcs.mp4", "encryption of track 1 (encv) at byte 0 is not supported"),
    ("mp4/mp4ff_cbcs_audio.mp4", "encryption of track 1 (enca) at byte 0 is not supported"),
    ("mp4/mp4ff_golden_init_video.mp4", "track 1 (avc1.4d401f) has no samples at byte 0"),
    ("mp4/mp4ff_hvc1_init.mp4", "track 1 (hvc1.1.6.L63.90) has no samples at byte 0"),
    ("mp4/mp4ff_iamf.mp4", "codec 'iamf' of track 1 at byte 0 is not supported"),
    ("mp4/mp4ff_init.mp4", "track 2 (avc1.64001e) has no samples at byte 0"),
    (
        "mp4/mp4ff_init_prog.mp4",
        "media of track 1 at byte 0 is cut off: 3326728 bytes announced, 5113 present",
    ),
    (
        "mp4/mp4ff_prog_8s_enc_dashinit.mp4",
        "encryption of track 2 (encv) at byte 0 is not supported",
    ),
    (
        "mp4/mp4ff_seg_cenc_no_seig.m4v",
        "moov: missing, a media segment without its header at byte 44",
    ),
    ("mp4/mp4ff_vvc_400kbps_2s.mp4", "codec 'vvc1' of track 1 at byte 0 is not supported"),
];

const TRIMMED: [(&str, &str, usize); 2] =
    [("mp4/androidx_sample_opus.mp4", "a0", 36), ("mp4/torchcodec_nasa_13013.mp4", "a0", 1)];

#[test]
fn every_file_is_packaged_or_refused_as_stated() {
    package(&made(), &MADE);
}

#[test]
#[ignore = "corpus"]
fn corpus_every_file_is_packaged_or_refused_as_stated() {
    package(&corpus(), &CORPUS);
}

fn package(media: &Media, expected: &Expected) {
    let library = media.library();
    let (mut packaged, mut left_out, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for path in media.every_mp4() {
        match library.title(&path) {
            Ok(title) => {
                for left in &title.left_out {
                    assert_eq!(left.file, path);
                    let (track, codec) = (left.track.unwrap(), left.codec.clone());
                    left_out.push((path.clone(), track, codec, left.reason.clone()));
                }
                packaged.push((path, summary(&title)));
            }
            Err(Error::Unreadable { what, reason }) => {
                assert_eq!(what, path);
                refused.push((path, reason.to_string()));
            }
            Err(error) => panic!("{path}: {error}"),
        }
    }
    let pairs = |table: &[(&str, &str)]| -> Vec<(String, String)> {
        table.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    };
    assert_eq!(packaged, pairs(expected.packaged));
    assert_eq!(refused, pairs(expected.refused));
    let expected: Vec<_> = expected
        .left_out
        .iter()
        .map(|&(path, track, codec, reason)| {
            (path.to_owned(), track, codec.to_owned(), reason.to_owned())
        })
        .collect();
    assert_eq!(left_out, expected);
}

#[test]
fn segments_are_the_samples_of_the_source() {
    let paths = MADE.packaged.iter().map(|(path, _)| *path);
    compare(&made(), paths, MADE.trimmed);
}

#[test]
#[ignore = "corpus"]
fn corpus_segments_are_the_samples_of_the_source() {
    let paths = CORPUS.packaged.iter().map(|(path, _)| *path);
    compare(&corpus(), paths, CORPUS.trimmed);
}

/// NAL unit lengths of two bytes, and samples with different sample descriptions.
#[test]
fn shapes_that_ffmpeg_does_not_write_are_packaged_or_refused() {
    let root = tempfile::tempdir().unwrap();
    let write =
        |name: &str, clip: &Avc| std::fs::write(root.path().join(name), clip.mp4()).unwrap();
    let (first, second) = (Avc::of("mp4/pictures.mp4"), Avc::of("mp4/pictures-ntsc.mp4"));
    write("two.mp4", &second.clone().with_two_byte_lengths());
    // Some writers describe the same samples several times.
    write("twice.mp4", &first.clone().followed_by(&first));
    compare(&Media::of(root.path()), ["two.mp4", "twice.mp4"], &[]);
    // A header has one description per track.
    write("both.mp4", &first.followed_by(&second));
    let reason = Media::of(root.path()).library().title("both.mp4").unwrap_err().to_string();
    let change = "a change of sample description in track 1 (avc1.64001f) at byte 0";
    assert_eq!(reason, format!("both.mp4: {change} is not supported"));
}

fn compare<'a>(
    media: &Media,
    paths: impl IntoIterator<Item = &'a str>,
    expected: &[(&str, &str, usize)],
) {
    let library = media.library();
    let mut trimmed = Vec::new();
    for path in paths {
        let title = library.title(path).unwrap();
        let (index, data) = index(&media.path(path));
        let mut left: Vec<_> = index.tracks.iter().collect();
        let mut moved: Option<(i128, i128)> = None;
        for track in &title.tracks {
            let name = format!("{path} {}", track.name);
            let read = chunks(track);
            assert_eq!(read.len(), track.segment_count() as usize, "{name}");
            let from = source(&mut left, track);
            let mut of_file: Vec<_> = from.samples.iter().collect();
            of_file.truncate(of_file.len() - behind_the_end(from));
            let samples: Vec<_> = read.iter().flat_map(|chunk| &chunk.samples).collect();
            let skipped = of_file.len() - samples.len();
            if skipped > 0 {
                trimmed.push((path, track.name.clone(), skipped));
            }
            // All tracks are shifted by the same time.
            let shift = samples[0].dts - of_file[skipped].dts;
            let by = (i128::from(shift), i128::from(track.media.timescale));
            let first = *moved.get_or_insert(by);
            assert_eq!(by.0 * first.1, first.0 * by.1, "{name}");
            for (ours, theirs) in samples.iter().zip(&of_file[skipped..]) {
                let times = (theirs.dts + shift, theirs.cts, theirs.sync);
                assert_eq!((ours.dts, ours.cts, ours.sync), times, "{name}");
                assert!(ours.dts >= 0, "{name}");
                let at = theirs.offset as usize;
                assert_eq!(ours.data, data[at..at + theirs.size as usize], "{name}");
            }
            for ((number, chunk), segment) in read.iter().enumerate().zip(track.segments()) {
                let first = &chunk.samples[0];
                assert!(chunk.segment_start && first.sync, "{name}, segment {number}");
                assert_eq!(chunk.sequence_number as usize, number + 1, "{name}");
                assert_eq!(chunk.track_id, track.media.id, "{name}");
                assert_eq!(first.pts(), segment.start, "{name}, segment {number}");
            }
        }
    }
    let expected: Vec<_> =
        expected.iter().map(|&(path, name, count)| (path, name.to_owned(), count)).collect();
    assert_eq!(trimmed, expected);
}
