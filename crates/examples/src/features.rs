use crate::routeguide::{Feature, Point};

/// What the route guide knows: invented places on an invented coast, from south-west to north-east.
pub fn features() -> Vec<Feature> {
    PLACES
        .iter()
        .map(|&(name, latitude, longitude)| Feature {
            name: name.to_owned(),
            location: Some(Point { latitude, longitude }),
        })
        .collect()
}

/// Name, latitude and longitude, in units of 10^-7 degrees.
const PLACES: [(&str, i32, i32); 128] = [
    ("Gannet Ford", 571_775_356, -78_674_518),
    ("Raven Tower", 571_781_402, -72_557_776),
    ("Copper Harbour", 571_974_380, -74_475_225),
    ("Ullavoe", 573_700_207, -72_924_671),
    ("Inverlasket Sound", 572_758_557, -72_865_660),
    ("Rowan Light", 572_893_832, -76_084_043),
    ("Sandvarra", 574_082_089, -72_716_452),
    ("White Light", 572_722_042, -71_700_950),
    ("Aldvik", 572_089_830, -76_831_740),
    ("Amber Beach", 575_390_658, -71_100_837),
    ("Old Beach", 572_587_335, -73_264_154),
    ("Copper Ness", 572_957_849, -70_878_362),
    ("Plover Tarn", 575_387_428, -70_255_757),
    ("Silent Skerry", 574_102_621, -70_286_057),
    ("Juniper Stack", 573_245_766, -73_555_288),
    ("Skua Farm", 575_154_610, -71_141_547),
    ("Seal Chapel", 574_968_185, -72_457_080),
    ("Jarrasund", 575_756_743, -70_153_017),
    ("Farloe", 576_897_651, -68_867_111),
    ("Gannet Skerry", 576_286_247, -66_512_938),
    ("Lower Cove", 576_214_321, -66_839_937),
    ("Black Head", 576_792_139, -65_940_818),
    ("Whalgarth", 577_873_930, -67_695_831),
    ("Far Mill", 578_101_304, -68_193_291),
    ("Rostannoch", 577_688_800, -66_242_829),
    ("Salt Weir", 578_832_558, -67_766_023),
    ("Corrantha", 576_875_351, -70_452_903),
    ("Upper Ford", 578_028_847, -70_799_243),
    ("Black Tower", 576_785_793, -70_187_784),
    ("Rowan Bridge", 578_756_550, -66_990_240),
    ("Broken Moor", 576_925_624, -64_016_820),
    ("Long Ford", 579_344_106, -67_418_687),
    ("Kittiwake Farm", 579_000_264, -63_875_359),
    ("Salt Quarry", 578_034_083, -63_386_813),
    ("Lower Stack", 578_801_660, -61_774_920),
    ("Salt Tarn", 579_036_103, -66_720_956),
    ("Seal Cove", 579_637_941, -64_080_863),
    ("White Bridge", 580_060_502, -62_334_705),
    ("Gannet Farm", 581_173_463, -63_687_351),
    ("Heron Chapel", 580_223_563, -65_652_493),
    ("Borrisay", 579_652_936, -61_050_693),
    ("Skua Quarry", 581_037_985, -61_564_074),
    ("Storm Quarry", 580_686_041, -64_621_956),
    ("Kittiwake Tower", 579_459_361, -64_657_482),
    ("Nessavarra", 579_175_631, -64_945_949),
    ("Skua Bridge", 580_732_449, -63_932_646),
    ("Otter Beach", 582_686_904, -59_532_328),
    ("Heather Weir", 579_830_600, -59_198_211),
    ("Raven Stack", 580_970_461, -57_431_168),
    ("Quendril", 582_179_019, -63_309_646),
    ("Heron Farm", 580_895_535, -62_908_270),
    ("Amber Moor", 580_563_131, -61_664_061),
    ("Rowan Harbour", 583_783_390, -62_231_842),
    ("Petrel Beach", 582_613_547, -58_524_932),
    ("Old Skerry", 582_358_204, -56_795_007),
    ("Heather Tarn", 583_880_427, -56_331_789),
    ("Long Pass", 583_126_750, -57_690_725),
    ("Kittiwake Beach", 582_035_166, -59_627_038),
    ("Glennish", 584_746_623, -60_087_895),
    ("Petrel Ford", 582_275_743, -59_751_987),
    ("Pellavoe", 585_103_538, -57_328_265),
    ("Gannet Harbour", 584_615_916, -53_499_858),
    ("Storm Beach", 585_249_985, -57_519_560),
    ("Vasternoch Green", 584_777_713, -53_761_698),
    ("Puffin Ford", 583_453_529, -54_847_509),
    ("Long Moor", 586_226_462, -52_657_360),
    ("Silent Tower", 584_285_073, -57_532_085),
    ("Amber Head", 585_583_948, -57_715_806),
    ("Salt Beach", 585_876_712, -57_453_773),
    ("Heather Ness", 585_450_553, -52_699_676),
    ("Puffin Harbour", 584_451_840, -51_702_436),
    ("Marrowick", 585_611_845, -55_136_654),
    ("Juniper Bridge", 587_170_680, -50_383_317),
    ("Juniper Head", 587_088_460, -53_135_120),
    ("Raven Cove", 587_646_977, -54_119_352),
    ("Tern Tarn", 586_013_888, -51_358_739),
    ("White Cove", 588_364_302, -50_794_649),
    ("Amber Mill", 588_951_947, -50_762_521),
    ("Grey Tower", 589_222_946, -50_553_733),
    ("Kellstane", 587_300_370, -48_143_982),
    ("Otter Ford", 588_901_494, -47_057_945),
    ("Petrel Cove", 588_966_912, -52_543_562),
    ("Otter Ferry", 589_651_570, -52_633_696),
    ("Eskholm", 588_927_195, -50_259_657),
    ("Gannet Tower", 589_402_766, -47_489_473),
    ("Upper Light", 590_137_411, -49_117_803),
    ("Orrasay", 589_699_318, -46_663_020),
    ("Long Stack", 590_074_132, -51_478_822),
    ("Raven Tarn", 589_584_734, -46_985_144),
    ("Windy Head", 589_336_442, -44_451_970),
    ("Otter Moor", 590_232_404, -44_630_404),
    ("Old Mill", 590_607_902, -44_701_539),
    ("Long Harbour", 590_467_366, -48_399_472),
    ("Silent Moor", 590_270_115, -44_744_777),
    ("Rowan Weir", 590_051_769, -43_746_743),
    ("Kittiwake Ford", 590_662_141, -48_589_993),
    ("Grey Tarn", 589_815_042, -44_690_388),
    ("Heather Beach", 593_388_419, -47_363_627),
    ("Grey Chapel", 593_005_420, -47_440_541),
    ("White Skerry", 593_887_662, -45_546_184),
    ("Tolsker", 593_658_143, -41_608_443),
    ("Salt Chapel", 594_265_563, -44_742_397),
    ("Rowan Mill", 593_149_636, -41_038_802),
    ("Salt Cove", 592_655_409, -45_177_811),
    ("Puffin Weir", 594_265_877, -45_542_468),
    ("Upper Quarry", 593_029_665, -39_685_661),
    ("Black Quarry", 593_771_255, -43_930_323),
    ("Yarrowfell", 592_732_464, -41_704_698),
    ("Salt Moor", 593_788_836, -43_007_834),
    ("Heron Tower", 595_505_501, -37_728_648),
    ("Old Tower", 594_296_347, -43_702_646),
    ("Otter Harbour", 592_831_002, -43_448_376),
    ("Plover Ferry", 595_235_409, -37_795_597),
    ("Juniper Chapel", 594_972_025, -37_173_968),
    ("Seal Ferry", 594_724_679, -37_956_623),
    ("Tern Moor", 594_675_172, -38_114_586),
    ("White Ferry", 596_676_145, -39_174_093),
    ("Heron Skerry", 594_400_380, -40_741_040),
    ("Lunnafirth", 597_566_134, -36_264_063),
    ("Kittiwake Pass", 594_376_314, -38_946_179),
    ("Dunvarra", 596_200_263, -40_146_516),
    ("Copper Weir", 596_908_241, -35_875_078),
    ("Rowan Chapel", 595_920_461, -35_038_697),
    ("Black Ferry", 597_715_994, -38_728_972),
    ("Upper Ferry", 597_653_913, -39_254_581),
    ("Amber Bridge", 595_773_051, -33_050_669),
    ("Hollarvoe", 596_324_622, -37_425_587),
    ("Raven Head", 599_287_155, -34_952_131),
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_feature_has_a_name_and_a_place_of_its_own() {
        let features = features();
        assert!(features.len() >= 100);
        let names: HashSet<&str> = features.iter().map(|feature| feature.name.as_str()).collect();
        let places: HashSet<Point> = features.iter().filter_map(|feature| feature.location).collect();
        assert_eq!(names.len(), features.len());
        assert_eq!(places.len(), features.len());
        assert!(!names.contains(""));
    }
}
